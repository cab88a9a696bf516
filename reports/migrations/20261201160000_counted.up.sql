-- Questions about time read a little of many attempts: these indexes hold it, so that their long rows are not read for it.
DROP INDEX attempts_of_case;
CREATE INDEX attempts_of_case ON attempts
    (case_key, started_at, is_final, run_key, outcome, environment_id, architecture, attempt, revision, host);
DROP INDEX attempts_by_architecture;
CREATE INDEX attempts_by_architecture ON attempts (architecture, case_key);
CREATE INDEX attempts_of_run ON attempts
    (run_key, is_final, architecture, case_key, outcome, attempt, verdict, environment_id, farm_overhead_ms);
