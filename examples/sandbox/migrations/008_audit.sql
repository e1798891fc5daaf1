CREATE TABLE audit (
    id INTEGER PRIMARY KEY,
    order_id INTEGER NOT NULL,
    text VARCHAR(200) NOT NULL
);
CREATE INDEX audit_order ON audit (order_id);
ALTER TABLE orders ADD COLUMN cents INTEGER NOT NULL DEFAULT 0;
CREATE INDEX orders_state ON orders (state);
