-- name: AddProducts :copyfrom
INSERT INTO products (name, stock) VALUES ($1, $2);

-- name: Products :many
SELECT * FROM products ORDER BY id;

-- name: ProductByName :one
SELECT * FROM products WHERE name = $1;

-- name: Take :execrows
UPDATE products SET stock = stock - @pieces WHERE id = @id AND stock >= @pieces;

-- name: Restock :batchexec
UPDATE products SET stock = stock + @pieces WHERE id = @id;

-- name: CountOrders :one
SELECT count(*) FROM orders;
