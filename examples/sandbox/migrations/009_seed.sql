INSERT INTO categories VALUES (1, 'books'), (2, 'music');
INSERT INTO warehouses VALUES (1, 'north'), (2, 'south');
INSERT INTO tags VALUES (1, 'new'), (2, 'cheap');
