CREATE TABLE warehouses (
    id INTEGER PRIMARY KEY,
    name VARCHAR(100) NOT NULL
);
CREATE TABLE shipments (
    id INTEGER PRIMARY KEY,
    order_id INTEGER NOT NULL,
    warehouse INTEGER NOT NULL,
    FOREIGN KEY (order_id) REFERENCES orders (id),
    FOREIGN KEY (warehouse) REFERENCES warehouses (id)
);
CREATE TABLE parcels (
    id INTEGER PRIMARY KEY,
    shipment INTEGER NOT NULL,
    grams INTEGER NOT NULL,
    FOREIGN KEY (shipment) REFERENCES shipments (id)
);
CREATE INDEX shipments_order ON shipments (order_id);
CREATE INDEX parcels_shipment ON parcels (shipment);
