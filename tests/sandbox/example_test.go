package sandbox_test

import (
	"context"
	"database/sql"
	"fmt"
	"testing"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/sandbox"
)

// A test gets a handle of its own, and writes what it likes.
func ExampleDB() {
	connector := pooldriver.New(":memory:") // one for all tests
	setUp := sql.OpenDB(connector)
	defer setUp.Close()
	if _, err := setUp.Exec("CREATE TABLE orders (id integer PRIMARY KEY)"); err != nil {
		panic(err)
	}

	test := func(t testing.TB) {
		db := sandbox.DB(t, connector)
		if _, err := db.Exec("INSERT INTO orders VALUES (1)"); err != nil {
			t.Fatal(err)
		}
		var n int
		if err := db.QueryRow("SELECT count(*) FROM orders").Scan(&n); err != nil {
			t.Fatal(err)
		}
		fmt.Println(n, "order")
	}
	run(test)
	run(test) // the second test does not see what the first has written
	// Output:
	// 1 order
	// 1 order
}

// run is what "go test" does with a test.
func run(test func(t testing.TB)) {
	t := &recorder{name: "TestOrders", ctx: context.Background()}
	test(t)
	for _, failure := range t.end() {
		panic(failure)
	}
}
