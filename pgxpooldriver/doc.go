// Package pgxpooldriver gives the connections of a pooldriver.Connector the shape of a pgxpool.Pool.
package pgxpooldriver
