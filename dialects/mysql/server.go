package mysql

import (
	"context"
	"crypto/tls"
	"maps"
	"net"

	"github.com/go-sql-driver/mysql"

	"github.com/pooldriver/pooldriver/dialects"
)

// server is one server that a DSN names, with what is known of this server only.
type server struct {
	name string // for errors
	// config and killConfig are never handed to the driver, only clones of them: the driver fills
	// in what is missing, and strikes TLS out if the server has none and needs none.
	config     *mysql.Config
	killConfig *mysql.Config // without database, variables and character sets
	plain      bool          // neither TLS nor compression between the driver and a wire
	compress   bool

	killer *killer
}

// readsOnly is the variable that makes transactions read-only, in the words of each server.
const readsOnly = "/*M!100000 tx_read_only *//*!80000 transaction_read_only */"

func (t *template) newServer(who parts, at endpoint, p params) (s *server, err error) {
	s = &server{name: at.String()}
	if s.config, err = config(&who, at, p.all); err != nil {
		return nil, err
	}
	if p.readsOnly {
		s.config.Params = maps.Clone(s.config.Params)
		if s.config.Params == nil {
			s.config.Params = map[string]string{}
		}
		s.config.Params[readsOnly] = "1"
	}
	who.database = ""
	if s.killConfig, err = config(&who, at, p.transport); err != nil {
		return nil, err
	}
	s.plain, s.compress = s.config.TLS == nil && !p.compress, p.compress
	t.serve(s)
	return s, nil
}

// serve has the template dial a server whose configuration is known.
func (t *template) serve(s *server) {
	if wired(s.config.Net) || t.network != nil {
		s.useWire()
	}
	s.killConfig.ConnectionAttributes = "program_name:pooldriver-kill"
	s.killer = newKiller(func(ctx context.Context, address string, as dialects.Credential) (link, error) {
		return t.dialKiller(ctx, s, address, as)
	})
	s.killer.logins = &t.logins
	t.servers = append(t.servers, s)
}

// useWire says that connections to the server have a wire. The driver cannot look at a
// socket that is wrapped; Session.Peek can.
func (s *server) useWire() { s.config.CheckConnLiveness = false }

// carrier is what a command that the driver does not know goes through: the wire, or the driver's TLS
// on it. nil: the driver compresses, or has the connection where it is not found.
func (s *server) carrier(l link, i inner) net.Conn {
	switch sealed, ok := i.speaks.(*tls.Conn); {
	case s.plain:
		return l.wire
	case s.compress:
		return nil
	case ok && sealed.NetConn() == net.Conn(l.wire):
		return sealed
	case i.speaks == net.Conn(l.wire): // tls=preferred, and the server has none
		return l.wire
	}
	return nil
}

// dialKiller opens the connection that kills, to the address of the connection to be killed: the
// server's name may also lead to other addresses.
func (t *template) dialKiller(ctx context.Context, s *server, address string, as dialects.Credential) (link, error) {
	c := s.killConfig.Clone()
	c.User, c.Passwd = as.User, as.Password
	return dial(ctx, c, way{address: address, network: t.network}, t.Target())
}
