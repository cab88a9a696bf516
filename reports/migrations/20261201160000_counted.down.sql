DROP INDEX attempts_of_run;
DROP INDEX attempts_by_architecture;
CREATE INDEX attempts_by_architecture ON attempts (architecture, started_at);
DROP INDEX attempts_of_case;
CREATE INDEX attempts_of_case ON attempts (case_key, started_at);
