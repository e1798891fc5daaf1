package pairs

import (
	"context"
	"database/sql/driver"
	"log/slog"
	"net"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/integration/testbed"
)

// refusals are the configurations that are impossible, each with its reason. New has an error for those with a text in says,
// and for no other one.
var refusals = []struct{ of, why, says string }{
	{"place=wrap replicas=explicit|tx|auto", "Wrap has no replicas", "pool_replicas cannot be used with this postgres connection"},
	{"place=wrap credentials=rotating", "Wrap has the credentials of its connector", "Config.Credentials cannot be used with this postgres connection"},
	{"place=wrap hosts=several", "Wrap has the hosts of its connector", ""},
	{"pipeline=16 cache=0", "without kept statements there is no pipeline (docs/settings.md)", "a pipeline needs prepared statements"},
	{"face=pgx pipeline=16", "pgx's calls are never in a pipeline (docs/settings.md)", ""},
	{"reads=on replicas=none", "WithReads does nothing without replicas", ""},
	{"event=hold|silent replicas=none", "there is no replica", ""},
	{"priority=low overload=off", "priorities count only under overload", ""},
	{"place=handle event=kill", "the sandbox ends with its connection", ""},
	{"place=handle event=drain", "the sandbox ends with its Connector", ""},
	{"place=handle event=flush", "the connection of a sandbox is lent until the test ends", ""},
	{"place=handle event=hold|silent", "a sandbox reads on the primary alone", ""},
	{"place=handle credentials=rotating", "the connection of a sandbox is lent until the test ends", ""},
	{"place=handle overload=on", "a sandbox has one connection of its own, and no queue", ""},
	{"place=handle pipeline=16", "a sandbox has one connection of its own, and no queue", ""},
	{"place=handle replicas=explicit|tx|auto", "a sandbox reads on the primary alone", ""},
	{"place=handle second=same|other", "a sandbox is of one Connector", ""},
	{"place=handle|wrap reads=on", "WithReads does nothing without replicas", ""},
	{"place=handle priority=low", "priorities count only under overload", ""},
	{"place=wrap event=hold|silent", "there is no replica", ""},
	{"place=handle river=on", "no job runs before the commit", ""},
	{"place=database|wrap river=on", "River's tables are in the world's own database", ""},
	{"place=database credentials=rotating", "the second user has no rights in the database of a test", ""},
	{"event=drain river=on", "River has to end before the Connector", ""},
}

// wrong are what New refuses by itself, each with a part of its error. A dialect of * is each one.
var wrong = []struct{ dialect, options, says string }{
	{"sqlite", "pool_replicas", "pool_replicas cannot be used"},
	{"sqlite", "Credentials", "Config.Credentials cannot be used"},
	{"sqlite", "Dial", "Config.Dial cannot be used"},
	{"mysql", "pool_pipeline", "only PostgreSQL has pipelines"},
	{"sqlite", "pool_pipeline", "only PostgreSQL has pipelines"},
}

// other has a value that is not the default for each option of the table.
var other = map[string]string{
	"pool_max_conns": "4", "pool_min_conns": "1", "pool_min_idle_conns": "1", "pool_max_conn_lifetime": "2h", "pool_max_conn_lifetime_jitter": "1m",
	"pool_max_waiters": "9", "pool_queue_dry": "true", "pool_reset": "always", "pool_pipeline": "16", "pool_stmt_cache": "1", "pool_stmt_budget": "100",
	"pool_lazy_begin": "true", "pool_ambient": "warn", "pool_nested_buffer": "1MiB", "pool_nested_buffer_total": "2MiB", "pool_sample_stacks": "1",
	"pool_leak_exempt": "report", "pool_replicas": "127.0.0.1:1", "pool_replica_max_conns": "3", "pool_replica_reads": "auto",
	"pool_replica_fallback": "off", "pool_breaker_failures": "3",
}

// fields has a value for each field of Config that is not in the table of options.
var fields = map[string]any{
	"ListenDSN":   "",
	"Credentials": pooldriver.CredentialSource(func(context.Context) (pooldriver.Credential, error) { return pooldriver.Credential{}, nil }),
	"Dial": func(ctx context.Context, network, addr string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, addr)
	},
	"AfterConnect": func(context.Context, driver.Conn) error { return nil },
	"TaskKey":      func(context.Context) (any, context.Context) { return nil, nil },
	"Observer":     &pooldriver.Observer{},
	"Logger":       slog.New(slog.DiscardHandler),
}

// TestEachPairOfOptionsAtNew tries all pairs of options with each dialect.
func TestEachPairOfOptionsAtNew(t *testing.T) {
	t.Parallel()
	sample := pooldriver.New("postgres://u@127.0.0.1:1/d")
	require.NoError(t, sample.Err())
	names := []string{""}
	for _, s := range sample.Settings() {
		names = append(names, s.Name)
	}
	for name := range fields {
		names = append(names, name)
	}
	slices.Sort(names)
	tried := 0
	for dialect, dsn := range map[string]string{"postgres": "postgres://u@127.0.0.1:1/d?application_name=a", "mysql": "mysql://u@127.0.0.1:1/d?charset=utf8mb4", "sqlite": "sqlite:file::memory:?mode=memory"} {
		for i, a := range names {
			for _, b := range names[i:] {
				tried++
				err := with(dsn, a, b).Err()
				want := ""
				for _, w := range wrong {
					if w.dialect == "*" || w.dialect == dialect {
						if parts := strings.Fields(w.options); !slices.ContainsFunc(parts, func(p string) bool { return p != a && p != b }) {
							want = w.says
							if err != nil && strings.Contains(err.Error(), want) {
								break
							}
						}
					}
				}
				if want == "" {
					require.NoError(t, err, "%s %s %s", dialect, a, b)
				} else {
					require.ErrorContains(t, err, want, "%s %s %s", dialect, a, b)
				}
			}
		}
	}
	t.Logf("%d pairs", tried)
}

// with returns a Connector with two options that are not at their defaults.
func with(dsn string, names ...string) *pooldriver.Connector {
	// What has no effect alone would fill the log.
	options := []pooldriver.Option{func(c *pooldriver.Config) { c.Logger = slog.New(slog.DiscardHandler) }}
	for _, name := range slices.Compact(names) {
		if field, ok := fields[name]; ok {
			options = append(options, func(c *pooldriver.Config) { reflect.ValueOf(c).Elem().FieldByName(name).Set(reflect.ValueOf(field)) })
		} else if value, ok := other[name]; ok {
			dsn += "&" + name + "=" + value
		} else if name != "" {
			dsn += "&" + name + "=3s"
		}
	}
	return pooldriver.New(dsn, options...)
}

// TestEachPairOfLevelsAtNew tries all pairs of levels, with Connectors that never connect.
func TestEachPairOfLevelsAtNew(t *testing.T) {
	t.Parallel()
	w := &world{account: testbed.Account{Server: &testbed.Server{Engine: testbed.Postgres}, Addr: "127.0.0.1:1", User: "u", Database: "d"}}
	open, _ := cells(2, "")
	for _, r := range refusals {
		for _, k := range expand(r.of) {
			c := k.alone()
			err := w.open(t, c, w.newSetup(c), w.account, nil, slog.DiscardHandler).Err()
			if r.says == "" {
				require.NoError(t, err, k)
			} else {
				require.ErrorContains(t, err, r.says, k)
			}
		}
	}
	for _, k := range open {
		c := k.alone()
		require.NoError(t, w.open(t, c, w.newSetup(c), w.account, nil, slog.DiscardHandler).Err(), k)
	}
}

// expand returns the cells of a pattern of two axes.
func expand(pattern string) (all []cell) {
	parts := strings.Fields(pattern)
	a, la, _ := strings.Cut(parts[0], "=")
	b, lb, _ := strings.Cut(parts[1], "=")
	for l := range strings.SplitSeq(la, "|") {
		for m := range strings.SplitSeq(lb, "|") {
			i, j := axisOf(a), axisOf(b)
			all = append(all, cell{{int8(i), int8(slices.Index(axes[i].levels, l))}, {int8(j), int8(slices.Index(axes[j].levels, m))}, {-1}})
		}
	}
	return all
}
