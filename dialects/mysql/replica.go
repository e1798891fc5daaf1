package mysql

import (
	"errors"
	"slices"
	"strings"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/dialects/internal/hosts"
)

// Replica implements dialects.ReplicaTemplate.
func (t *template) Replica(host string) (dialects.Template, error) {
	where, err := hostPort(host)
	if host == "" || strings.HasPrefix(host, ":") || err != nil {
		return nil, hosts.ErrReplicaForm
	}
	if t.at.address == "" {
		return nil, hosts.ErrOfConfig
	}
	at := t.at
	at.network, at.address, at.more = where.network, where.address, nil
	p := t.params
	p.readsOnly = true
	return templateOf(at, p, hosts.Standby)
}

// Standbys implements dialects.ReplicaTemplate.
func (t *template) Standbys() ([]string, error) {
	if t.role != hosts.ReadWrite && t.role != hosts.Primary {
		return nil, errors.New("the DSN leads to any of its hosts: let it ask for target_session_attrs=read-write or primary")
	}
	if slices.ContainsFunc(t.servers, func(s *server) bool { return s.config.Net != "tcp" }) {
		return nil, errors.New("a host of the DSN is a socket: name the replicas in pool_replicas")
	}
	return t.Hosts(), nil
}
