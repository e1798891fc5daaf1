package driverconn

import "database/sql/driver"

// Named are arguments as the methods with a context take them.
func Named(args []driver.Value) []driver.NamedValue {
	n := make([]driver.NamedValue, len(args))
	for i, v := range args {
		n[i] = driver.NamedValue{Ordinal: i + 1, Value: v}
	}
	return n
}
