// Package pool is a generic resource pool: connections, clients, workers,
// whatever is costly to make and good for one borrower at a time.
package pool
