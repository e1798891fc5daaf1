CREATE TABLE orders (
    id INTEGER PRIMARY KEY,
    customer INTEGER NOT NULL,
    state VARCHAR(20) NOT NULL,
    FOREIGN KEY (customer) REFERENCES customers (id)
);
CREATE TABLE order_lines (
    id INTEGER PRIMARY KEY,
    order_id INTEGER NOT NULL,
    product INTEGER NOT NULL,
    pieces INTEGER NOT NULL,
    FOREIGN KEY (order_id) REFERENCES orders (id),
    FOREIGN KEY (product) REFERENCES products (id)
);
CREATE INDEX orders_customer ON orders (customer);
CREATE INDEX order_lines_order ON order_lines (order_id);
CREATE INDEX order_lines_product ON order_lines (product);
