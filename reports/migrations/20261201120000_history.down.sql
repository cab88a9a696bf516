DROP TABLE confirmations;
DROP INDEX runs_by_matrix;
ALTER TABLE runs DROP COLUMN selection;
ALTER TABLE runs DROP COLUMN finished;
