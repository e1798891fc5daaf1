package mysql

import (
	"context"
	"database/sql/driver"
	"strings"

	"github.com/go-sql-driver/mysql"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/dialects/internal/base"
	"github.com/pooldriver/pooldriver/dialects/internal/hosts"
)

// FromConfig returns a connector for pooldriver.Wrap, whose connections are dialled by config as New dials by a DSN: health checks,
// cancelling, cleaning in place. FromConfig keeps a copy. The connection that kills a cancelled statement has the same config
// without database and variables; BeforeConnect is called for it, too. pool_replicas needs the DSN: give it to New.
func FromConfig(config *mysql.Config) driver.Connector { return &configured{config.Clone()} }

// configured is a connector whose configuration the dialect takes. By itself it connects as the driver's own does.
type configured struct{ config *mysql.Config }

func (c *configured) Connect(ctx context.Context) (driver.Conn, error) {
	connector, err := mysql.NewConnector(c.config)
	if err != nil {
		return nil, err
	}
	return connector.Connect(ctx)
}

func (c *configured) Driver() driver.Driver { return &mysql.MySQLDriver{} }

func (c *configured) template() (dialects.Template, error) {
	own := c.config.Clone()
	if _, err := mysql.NewConnector(own); err != nil {
		return nil, scrub(err, own.Passwd, "")
	}
	where := endpoint{own.Net, own.Addr}.orDefault()
	own.Net, own.Addr = where.network, where.address
	at := parts{user: own.User, network: own.Net, address: own.Addr, database: own.DBName}
	t := &template{Destination: base.NewDestination(target(at), nil), list: hosts.New(where.String())}
	if own.DialFunc != nil {
		t.network = own.DialFunc
	}
	s := &server{name: where.String(), config: own, killConfig: own.Clone()}
	s.killConfig.DBName, s.killConfig.Params, s.killConfig.Collation = "", nil, ""
	// The driver keeps whether it compresses to itself, and writes it into a DSN.
	s.compress = strings.Contains(own.FormatDSN(), "compress=true")
	s.plain = own.TLS == nil && (own.TLSConfig == "" || own.TLSConfig == "false") && !s.compress
	t.serve(s)
	return t, nil
}
