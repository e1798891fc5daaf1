CREATE TABLE customers (
    id INTEGER PRIMARY KEY,
    name VARCHAR(100) NOT NULL,
    mail VARCHAR(100) NOT NULL UNIQUE
);
CREATE TABLE addresses (
    id INTEGER PRIMARY KEY,
    customer INTEGER NOT NULL,
    street VARCHAR(100) NOT NULL,
    FOREIGN KEY (customer) REFERENCES customers (id)
);
CREATE INDEX addresses_customer ON addresses (customer);
