-- Whether a run is complete is told by its row: final cases are counted where attempts are written.
ALTER TABLE runs ADD COLUMN finished BIGINT NOT NULL DEFAULT 0;
UPDATE runs SET finished = (SELECT COUNT(*) FROM attempts WHERE attempts.run_key = runs.run_key AND attempts.is_final = 1);
-- Which of the matrix's cases a run was to take; empty where all. Only runs of one selection are compared.
ALTER TABLE runs ADD COLUMN selection TEXT NOT NULL DEFAULT '';
CREATE INDEX runs_by_matrix ON runs (matrix, selection, started_at);

-- What trying a changed case again in both environments came to. confirmed is NULL where that decides nothing.
CREATE TABLE confirmations (
    confirmation_id TEXT NOT NULL PRIMARY KEY,
    case_key BIGINT NOT NULL REFERENCES cases (case_key),
    before_environment TEXT NOT NULL,
    before_revision TEXT,
    before_outcomes TEXT NOT NULL,
    after_environment TEXT NOT NULL,
    after_revision TEXT,
    after_outcomes TEXT NOT NULL,
    confirmed BIGINT,
    at BIGINT NOT NULL
);
CREATE INDEX confirmations_of_case ON confirmations (case_key, at);
