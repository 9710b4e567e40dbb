-- Configs that were set on consumer groups, by Kafka's names. A group need not exist to have some.
CREATE TABLE group_configs (
    group_id text NOT NULL,
    name text NOT NULL,
    value text NOT NULL,
    PRIMARY KEY (group_id, name)
);
