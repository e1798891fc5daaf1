package mysql

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"strconv"
)

var errNotDriver = errors.New("the connection is not one of github.com/go-sql-driver/mysql")

// execute runs a statement without arguments on a connection of the driver.
func execute(ctx context.Context, conn driver.Conn, query string) error {
	x, ok := conn.(driver.ExecerContext)
	if !ok {
		return errNotDriver
	}
	_, err := x.ExecContext(ctx, query, nil)
	return err
}

// text is a value of a row; NULL is not valid.
type text struct {
	string
	valid bool
}

// ask runs a query without arguments and returns its rows.
func ask(ctx context.Context, conn driver.Conn, query string) (answer [][]text, err error) {
	_, answer, err = askNamed(ctx, conn, query)
	return answer, err
}

// askNamed returns the answer by the names of the columns, for a statement whose columns differ between servers.
func askNamed(ctx context.Context, conn driver.Conn, query string) (columns []string, answer [][]text, err error) {
	q, ok := conn.(driver.QueryerContext)
	if !ok {
		return nil, nil, errNotDriver
	}
	rows, err := q.QueryContext(ctx, query, nil)
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	columns = rows.Columns()
	values := make([]driver.Value, len(columns))
	for {
		switch err := rows.Next(values); err {
		case nil:
			answer = append(answer, copyRow(values))
		case io.EOF:
			return columns, answer, nil
		default:
			return nil, nil, err
		}
	}
}

// copyRow: the driver reuses the memory of a row for the next.
func copyRow(values []driver.Value) []text {
	row := make([]text, len(values))
	for i, v := range values {
		switch v := v.(type) {
		case nil:
		case []byte:
			row[i] = text{string(v), true}
		default:
			row[i] = text{fmt.Sprint(v), true}
		}
	}
	return row
}

// askThread asks for the connection's number if no greeting was seen.
func askThread(ctx context.Context, conn driver.Conn) (uint64, error) {
	answer, err := ask(ctx, conn, "SELECT CONNECTION_ID()")
	if err != nil {
		return 0, err
	}
	if len(answer) != 1 || len(answer[0]) != 1 {
		return 0, errors.New("the server does not tell the connection's number")
	}
	return strconv.ParseUint(answer[0][0].string, 10, 64)
}
