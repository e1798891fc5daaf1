package main

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"sync/atomic"
	"time"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/internal/testing/fakedb"
)

// nullVenue is a driver that does nothing.
func nullVenue() venue {
	v := venue{name: sectionNull, entrants: nullEntrants(fakedb.NullConnector{Rows: listed}, nullTexts)}
	slow := &slowConnector{NullConnector: fakedb.NullConnector{Rows: listed}}
	v.cold, v.dialled = nullEntrants(slow, nullTexts), slow.opened.Load
	return v
}

func nullEntrants(c driver.Connector, t texts) []entrant {
	return []entrant{
		{plainName, everywhere, func(conns int) (client, error) { return openSQL(sql.OpenDB(c), nil, conns, t) }},
		{puddleName, everywhere, func(conns int) (client, error) { return openPuddleOver(c, conns, t) }},
		{ours, everywhere, func(conns int) (client, error) {
			return openOurs(sql.OpenDB(pooldriver.Wrap(c, func(c *pooldriver.Config) { c.MaxConns = conns })), t)
		}},
	}
}

// slowConnector takes its time to connect, and counts.
type slowConnector struct {
	fakedb.NullConnector
	opened atomic.Int64
}

// Connect opens nothing.
func (c *slowConnector) Connect(ctx context.Context) (driver.Conn, error) {
	c.opened.Add(1)
	select {
	case <-time.After(dialDelay):
		return c.NullConnector.Connect(ctx)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
