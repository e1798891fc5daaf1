CREATE TABLE payments (
    id INTEGER PRIMARY KEY,
    order_id INTEGER NOT NULL,
    cents INTEGER NOT NULL,
    FOREIGN KEY (order_id) REFERENCES orders (id)
);
CREATE TABLE refunds (
    id INTEGER PRIMARY KEY,
    payment INTEGER NOT NULL,
    cents INTEGER NOT NULL,
    FOREIGN KEY (payment) REFERENCES payments (id)
);
CREATE INDEX payments_order ON payments (order_id);
CREATE INDEX refunds_payment ON refunds (payment);
