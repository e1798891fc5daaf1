package unwrap

import (
	"context"
	"crypto/tls"
	"database/sql/driver"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
)

// stub makes a driver.Conn of what embeds it.
type stub struct{}

func (stub) Prepare(string) (driver.Stmt, error) { panic("nobody prepares") }
func (stub) Begin() (driver.Tx, error)           { panic("nobody begins") }
func (stub) Close() error                        { panic("nobody closes") }

type (
	server struct {
		stub
		name string
	}
	unwraps struct {
		stub
		c driver.Conn
	}
	raws struct {
		stub
		c driver.Conn
	}
	datadogs struct {
		stub
		c driver.Conn
	}
	embeds struct{ driver.Conn }
	names  struct {
		stub
		Conn driver.Conn
	}
	hides struct {
		stub
		conn driver.Conn
	}
	misleads struct {
		stub
		Conn int
	}
	promotes struct {
		stub
		*names
	}
	itself struct{ stub }
)

func (w unwraps) Unwrap() driver.Conn       { return w.c }
func (w raws) Raw() driver.Conn             { return w.c }
func (w datadogs) WrappedConn() driver.Conn { return w.c }
func (w *itself) Unwrap() driver.Conn       { return w }

func TestConnLooksThroughEveryKnownKindOfWrapper(t *testing.T) {
	inner := &server{name: "inner"}
	for _, c := range []driver.Conn{
		inner,
		unwraps{c: inner},
		&raws{c: inner},
		&datadogs{c: inner},
		embeds{inner},
		&embeds{inner},
		&names{Conn: inner},
		&raws{c: unwraps{c: &embeds{&names{Conn: inner}}}},
	} {
		require.Same(t, inner, Conn(c), "%T", c)
	}
}

func TestConnStopsWhereNothingIsToBeSeen(t *testing.T) {
	self := &itself{}
	for _, c := range []driver.Conn{
		unwraps{},
		names{},
		&hides{conn: &server{}},
		misleads{Conn: 1},
		promotes{},
		(*embeds)(nil),
		self,
	} {
		require.Equal(t, c, Conn(c), "%T", c)
	}
	require.Nil(t, Conn(nil))
}

type connector struct{ driver.Connector }

func (connector) Connect(context.Context) (driver.Conn, error) { panic("not for the test") }

type unwrapsConnector struct {
	connector
	inner driver.Connector
}

func (u unwrapsConnector) Unwrap() driver.Connector { return u.inner }

func TestConnectorLooksThroughEveryKnownKindOfWrapper(t *testing.T) {
	inner := &connector{}
	for _, c := range []driver.Connector{
		inner,
		&connector{inner},
		unwrapsConnector{inner: inner},
		&connector{unwrapsConnector{inner: &connector{inner}}},
	} {
		require.Same(t, inner, Connector(c), "%T", c)
	}
	require.Equal(t, unwrapsConnector{}, Connector(unwrapsConnector{}))
	require.Nil(t, Connector(nil))
}

type (
	counts   struct{ net.Conn }
	instance struct{ net.Conn }
)

func TestNetConnLooksThroughTLSAndWrappers(t *testing.T) {
	inner := &net.TCPConn{}
	for _, nc := range []net.Conn{
		inner,
		counts{inner},
		&instance{Conn: inner},
		tls.Client(inner, &tls.Config{}),
		&instance{Conn: tls.Client(counts{inner}, &tls.Config{})},
	} {
		require.Same(t, inner, NetConn(nc), "%T", nc)
	}
	require.Equal(t, counts{}, NetConn(counts{}))
	require.Nil(t, NetConn(nil))
}
