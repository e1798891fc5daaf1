CREATE TABLE categories (
    id INTEGER PRIMARY KEY,
    name VARCHAR(100) NOT NULL
);
CREATE TABLE products (
    id INTEGER PRIMARY KEY,
    category INTEGER NOT NULL,
    name VARCHAR(100) NOT NULL,
    cents INTEGER NOT NULL,
    stock INTEGER NOT NULL,
    CHECK (stock >= 0),
    FOREIGN KEY (category) REFERENCES categories (id)
);
CREATE INDEX products_category ON products (category);
CREATE INDEX products_name ON products (name);
