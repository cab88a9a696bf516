-- One text for SQLite and PostgreSQL. {key} is a surrogate key that the database counts, {bytes} its type for bytes.
-- Times are UTC milliseconds since 1970, JSON is TEXT, truth is 0 or 1.

CREATE TABLE plans (
    plan_id TEXT NOT NULL PRIMARY KEY,
    cases {bytes} NOT NULL,
    created_at BIGINT NOT NULL
);

CREATE TABLE runs (
    run_key {key},
    run_id TEXT NOT NULL UNIQUE,
    matrix TEXT NOT NULL,
    plan_id TEXT NOT NULL REFERENCES plans (plan_id),
    planned BIGINT NOT NULL,
    started_at BIGINT NOT NULL,
    last_sequence BIGINT NOT NULL
);
CREATE INDEX runs_by_start ON runs (started_at);

-- One row for each start of a shard: a shard that was killed and resumed has two.
CREATE TABLE run_shards (
    shard_key {key},
    session_id TEXT NOT NULL UNIQUE,
    run_key BIGINT NOT NULL REFERENCES runs (run_key),
    shard TEXT NOT NULL,
    host TEXT NOT NULL,
    pid BIGINT NOT NULL,
    started_at BIGINT NOT NULL,
    heartbeat_at BIGINT NOT NULL,
    ended_at BIGINT,
    state TEXT NOT NULL,
    facts TEXT NOT NULL
);
CREATE INDEX run_shards_by_run ON run_shards (run_key);

CREATE TABLE environments (
    environment_id TEXT NOT NULL PRIMARY KEY,
    name TEXT NOT NULL,
    packages TEXT NOT NULL,
    requirements TEXT NOT NULL,
    created_at BIGINT NOT NULL
);

-- An empty revision means that it was not known.
CREATE TABLE models (
    model TEXT NOT NULL,
    revision TEXT NOT NULL,
    source TEXT NOT NULL,
    architecture TEXT NOT NULL,
    class TEXT NOT NULL,
    harness TEXT NOT NULL,
    tags TEXT NOT NULL,
    downloads BIGINT NOT NULL,
    seen_at BIGINT NOT NULL,
    PRIMARY KEY (model, revision)
);
CREATE INDEX models_by_architecture ON models (architecture);

CREATE TABLE cases (
    case_key {key},
    case_id TEXT NOT NULL UNIQUE,
    canonical TEXT NOT NULL UNIQUE,
    model TEXT NOT NULL,
    class TEXT NOT NULL,
    harness TEXT NOT NULL,
    weights TEXT NOT NULL,
    workload TEXT NOT NULL,
    inputs TEXT NOT NULL,
    dtype TEXT NOT NULL,
    precision_word TEXT NOT NULL,
    attention TEXT NOT NULL,
    target TEXT NOT NULL,
    mode TEXT NOT NULL
);
CREATE INDEX cases_by_model ON cases (model);
CREATE INDEX cases_by_target ON cases (target, mode);

-- is_final marks the attempt that counts for its case in its run; is_retried says that another try was to follow.
CREATE TABLE attempts (
    attempt_key {key},
    attempt_id TEXT NOT NULL UNIQUE,
    run_key BIGINT NOT NULL REFERENCES runs (run_key),
    case_key BIGINT NOT NULL REFERENCES cases (case_key),
    attempt BIGINT NOT NULL,
    is_final BIGINT NOT NULL,
    is_retried BIGINT NOT NULL,
    architecture TEXT NOT NULL,
    revision TEXT,
    check_word TEXT NOT NULL,
    outcome TEXT NOT NULL,
    stage TEXT NOT NULL,
    fault TEXT,
    verdict TEXT NOT NULL,
    signature TEXT,
    message TEXT,
    started_at BIGINT NOT NULL,
    duration_ms BIGINT NOT NULL,
    farm_overhead_ms DOUBLE PRECISION,
    host TEXT NOT NULL,
    environment_id TEXT,
    inputs_hash TEXT,
    reference_key TEXT,
    rmse_ratio DOUBLE PRECISION,
    rel_l2 DOUBLE PRECISION,
    max_abs DOUBLE PRECISION,
    pcc DOUBLE PRECISION,
    cosine DOUBLE PRECISION,
    gain_error DOUBLE PRECISION,
    top1_agreement DOUBLE PRECISION,
    graph_count BIGINT,
    graph_break_count BIGINT,
    recompile_count BIGINT,
    compile_count BIGINT,
    compile_ms DOUBLE PRECISION,
    execute_count BIGINT,
    h2d_bytes BIGINT,
    d2h_bytes BIGINT,
    peak_device_bytes BIGINT,
    tokens_per_s DOUBLE PRECISION,
    UNIQUE (run_key, case_key, attempt)
);
CREATE INDEX attempts_of_case ON attempts (case_key, started_at);
CREATE INDEX attempts_by_architecture ON attempts (architecture, started_at);
CREATE INDEX attempts_by_outcome ON attempts (outcome, started_at);
CREATE INDEX attempts_by_signature ON attempts (signature, started_at);

-- What is read for one attempt at a time stands apart, so that scans over attempts stay short.
CREATE TABLE attempt_details (
    attempt_key BIGINT NOT NULL PRIMARY KEY REFERENCES attempts (attempt_key) ON DELETE CASCADE,
    expectation_reason TEXT,
    evidence TEXT NOT NULL,
    facts TEXT NOT NULL,
    output {bytes} NOT NULL,
    leaves {bytes} NOT NULL
);

-- sequence orders the events of a run in this database; origin_sequence is the number in the database that an event comes from.
CREATE TABLE events (
    run_key BIGINT NOT NULL REFERENCES runs (run_key),
    sequence BIGINT NOT NULL,
    shard_key BIGINT NOT NULL REFERENCES run_shards (shard_key),
    origin_sequence BIGINT NOT NULL,
    at BIGINT NOT NULL,
    case_id TEXT,
    attempt BIGINT,
    type TEXT NOT NULL,
    payload TEXT NOT NULL,
    PRIMARY KEY (run_key, sequence),
    UNIQUE (shard_key, origin_sequence)
);

CREATE TABLE model_references (
    reference_key TEXT NOT NULL,
    host TEXT NOT NULL,
    path TEXT NOT NULL,
    bytes BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    last_used_at BIGINT NOT NULL,
    facts TEXT NOT NULL,
    PRIMARY KEY (reference_key, host)
);
CREATE INDEX model_references_by_use ON model_references (host, last_used_at);

CREATE TABLE artifacts (
    attempt_key BIGINT NOT NULL REFERENCES attempts (attempt_key) ON DELETE CASCADE,
    kind TEXT NOT NULL,
    host TEXT NOT NULL,
    path TEXT NOT NULL,
    bytes BIGINT NOT NULL,
    PRIMARY KEY (attempt_key, kind, host, path)
);
