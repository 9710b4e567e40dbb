-- Random keys that only this cluster's brokers know. hints: authenticates the datagrams in which
-- they tell each other of new records. A row is made by the first broker that needs it.
CREATE TABLE secrets (
    name text PRIMARY KEY,
    secret bytea NOT NULL
);
