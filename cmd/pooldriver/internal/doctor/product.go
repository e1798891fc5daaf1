package doctor

import (
	"cmp"
	"context"
	"net"
	"strings"
)

// poolerOf is the pooler that a cloud runs under the name of a host; "": none that is known.
func poolerOf(address string) string {
	host, port, _ := net.SplitHostPort(address)
	host = strings.ToLower(host)
	switch {
	case strings.Contains(host, ".proxy-") && strings.Contains(host, ".rds.amazonaws.com"):
		return "RDS Proxy"
	case strings.HasSuffix(host, ".pooler.supabase.com"):
		return "Supavisor"
	case strings.HasSuffix(host, ".postgres.database.azure.com") && port == "6432":
		return "PgBouncer"
	}
	return ""
}

// poolerByName is the pooler that the name of the first host tells.
func (e *exam) poolerByName() string {
	if hosts := e.c.Hosts(); len(hosts) > 0 {
		return poolerOf(hosts[0])
	}
	return ""
}

// asksProxySQL is a question that ProxySQL answers itself, in these letters only.
const asksProxySQL = "select @@version_comment limit 1"

// mysqlProxy is what stands between the program and the server, by what it answers or by the name of
// its host; "": nothing is known of one.
func (e *exam) mysqlProxy(ctx context.Context, version string) string {
	var comment string
	_ = e.conn.QueryRowContext(ctx, asksProxySQL).Scan(&comment) // nobody has to know it
	if name := proxyOf(version, comment); name != "" {
		return name
	}
	return e.poolerByName()
}

// proxyOf names a proxy by its version and its answer to asksProxySQL.
func proxyOf(version, comment string) string {
	for _, name := range []string{"ProxySQL", "Vitess"} {
		if strings.Contains(strings.ToLower(version+" "+comment), strings.ToLower(name)) {
			return name
		}
	}
	return ""
}

// between says what stands between the program and the server. unknown is its kind, other whether the
// session has another number than the login told.
func between(name, unknown string, other bool) string {
	found := cmp.Or(name, unknown) + " is between the program and the server"
	if other {
		found += ": the session has another number than the login told"
	}
	return found
}
