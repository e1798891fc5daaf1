CREATE TABLE reviews (
    id INTEGER PRIMARY KEY,
    product INTEGER NOT NULL,
    customer INTEGER NOT NULL,
    stars INTEGER NOT NULL,
    FOREIGN KEY (product) REFERENCES products (id),
    FOREIGN KEY (customer) REFERENCES customers (id)
);
CREATE TABLE tags (
    id INTEGER PRIMARY KEY,
    name VARCHAR(50) NOT NULL UNIQUE
);
CREATE TABLE product_tags (
    product INTEGER NOT NULL,
    tag INTEGER NOT NULL,
    PRIMARY KEY (product, tag),
    FOREIGN KEY (product) REFERENCES products (id),
    FOREIGN KEY (tag) REFERENCES tags (id)
);
CREATE INDEX reviews_product ON reviews (product);
