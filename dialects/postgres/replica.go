package postgres

import (
	"errors"
	"net"
	"net/url"
	"strings"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/dialects/internal/hosts"
)

// Replica implements dialects.ReplicaTemplate.
func (t *template) Replica(host string) (dialects.Template, error) {
	name, port, err := net.SplitHostPort(host)
	if err != nil {
		name, port = strings.Trim(host, "[]"), "5432"
	}
	if name == "" || strings.ContainsAny(name, "@=&?,; '\\") {
		return nil, hosts.ErrReplicaForm
	}
	if t.dsn == "" {
		return nil, hosts.ErrOfConfig
	}
	r, err := parse(dsnOf(t.dsn, name, port))
	if err != nil {
		return nil, err
	}
	r.role = hosts.Standby
	return r, nil
}

// Standbys implements dialects.ReplicaTemplate.
func (t *template) Standbys() ([]string, error) {
	if t.role != hosts.ReadWrite && t.role != hosts.Primary {
		return nil, errors.New("the DSN leads to any of its hosts: let it ask for target_session_attrs=read-write or primary")
	}
	return t.addresses, nil
}

// dsnOf is a DSN, which was read before, with another host.
func dsnOf(dsn, host, port string) string {
	form, isURL := pgxForm(dsn)
	if !isURL {
		form = keywordValue.ReplaceAllStringFunc(form, func(given string) string {
			if name, _, _ := strings.Cut(given, "="); namesHost(strings.TrimSpace(name)) {
				return ""
			}
			return given
		})
		return form + " host='" + host + "' port='" + port + "'"
	}
	login, _, database, query := cutURL(form)
	if login != "" {
		login += "@"
	}
	params := []string{"host=" + url.QueryEscape(host), "port=" + url.QueryEscape(port)}
	for pair := range strings.SplitSeq(query, "&") {
		if name, _, _ := strings.Cut(pair, "="); pair != "" && !namesHost(name) {
			params = append(params, pair)
		}
	}
	scheme, _, _ := strings.Cut(form, "://")
	return scheme + "://" + login + "/" + database + "?" + strings.Join(params, "&")
}

func namesHost(keyword string) bool {
	return keyword == "host" || keyword == "hostaddr" || keyword == "port"
}
