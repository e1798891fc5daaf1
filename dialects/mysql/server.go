package mysql

import (
	"context"
	"maps"

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
	plain      bool          // neither TLS nor compression between us and a wire
	resettable bool          // plain, and there is a wire

	killer *killer
}

// readsOnly is the variable that makes transactions read-only, in the words of each server.
const readsOnly = "/*M!100000 tx_read_only *//*!80000 transaction_read_only */"

func (t *template) newServer(who parts, at place, p params) (s *server, err error) {
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
	s.killConfig.ConnectionAttributes = "program_name:pooldriver-kill"
	s.plain = s.config.TLS == nil && !p.compress
	if wired(at.network) {
		s.useWire()
	}
	s.killer = newKiller(func(ctx context.Context, address string, as dialects.Credential) (link, error) {
		return t.dialKiller(ctx, s, address, as)
	})
	s.killer.logins = &t.logins
	return s, nil
}

// useWire says that connections to the server have a wire. The driver cannot look at a
// socket that is wrapped; Session.Peek can.
func (s *server) useWire() {
	s.resettable = s.plain
	s.config.CheckConnLiveness = false
}

// dialKiller opens the connection that kills, to the address of the connection to be killed: the
// server's name may also lead to other addresses.
func (t *template) dialKiller(ctx context.Context, s *server, address string, as dialects.Credential) (link, error) {
	c := s.killConfig.Clone()
	c.User, c.Passwd = as.User, as.Password
	return dial(ctx, c, way{address: address, network: t.network}, t.Target())
}
