-- Names the listening socket of the broker so that no two live processes have the same name, or
-- null where the system offers none. A broker that binds the same socket again proves that the
-- broker which had it before is dead.
ALTER TABLE brokers ADD COLUMN socket_name text;
