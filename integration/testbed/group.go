package testbed

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/testcontainers/testcontainers-go"
)

// Group is a group of two members of MySQL, which replicates and lets both of them take
// writes (MySQL's manual, "Group Replication").
type Group struct {
	Members [2]*Server
}

var groupNames = [2]string{"a", "b"}

func groupConfig(i int) string {
	return fmt.Sprintf(`[mysqld]
bind-address = *
server-id = %d
report-host = %s
innodb-lock-wait-timeout = 5
log-bin = binlog
gtid-mode = ON
enforce-gtid-consistency = ON
plugin-load-add = group_replication.so
loose-group-replication-start-on-boot = OFF
loose-group-replication-group-name = 7d7d6b2e-8f35-4a53-9e0e-5f2c1c1f7a11
loose-group-replication-local-address = %[2]s:33061
loose-group-replication-group-seeds = a:33061,b:33061
loose-group-replication-single-primary-mode = OFF
loose-group-replication-enforce-update-everywhere-checks = ON
loose-group-replication-recovery-get-public-key = ON
`, i+1, groupNames[i])
}

// StartGroup starts a group that ends with the test.
func StartGroup(t testing.TB) *Group {
	t.Helper()
	n := NewNetwork(t)
	g := &Group{}
	for i := range g.Members {
		ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
		defer cancel()
		s, err := startMember(ctx, n, i)
		if s != nil {
			t.Cleanup(func() {
				if err := s.Terminate(); err != nil {
					t.Errorf("terminate member %s: %v", groupNames[i], err)
				}
			})
		}
		if err != nil {
			t.Fatalf("testbed: member %s: %v", groupNames[i], err)
		}
		g.Members[i] = s
	}
	return g
}

// startMember starts a server and has it join the group, or begin it.
func startMember(ctx context.Context, n *Network, i int) (*Server, error) {
	name := groupNames[i]
	s := &Server{Engine: OracleMySQL, options: options{network: n, alias: name}}
	env, _ := s.Engine.environment()
	b := boxed{
		title: "member " + name, image: image(OracleMySQL.image()), port: s.Engine.port(), env: env, network: n, alias: name,
		command: []string{"mysqld"},
		files: []testcontainers.ContainerFile{{
			Reader: strings.NewReader(groupConfig(i)), ContainerFilePath: "/etc/mysql/conf.d/testbed.cnf", FileMode: 0o644,
		}},
	}
	var err error
	if s.container, s.Addr, err = b.run(ctx); err != nil {
		return nil, err
	}
	if err = s.waitReady(ctx); err == nil {
		err = s.join(ctx, i == 0)
	}
	if err != nil {
		return s, fmt.Errorf("%w; log: %s", err, lastLog(ctx, s.container))
	}
	return s, nil
}

// join has a server take part in its group. What its set-up has written is not the group's.
func (s *Server) join(ctx context.Context, begin bool) error {
	admin, err := s.Admin()
	if err != nil {
		return err
	}
	for _, statement := range []string{
		"RESET BINARY LOGS AND GTIDS",
		fmt.Sprintf("SET GLOBAL group_replication_bootstrap_group = %v", begin),
		fmt.Sprintf("START GROUP_REPLICATION USER = 'root', PASSWORD = '%s'", mysqlPassword),
		"SET GLOBAL group_replication_bootstrap_group = OFF",
	} {
		if _, err := admin.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("%.40s: %w", statement, err)
		}
	}
	return s.waitFor(ctx, "the member", "ONLINE", func(ctx context.Context) (state string, err error) {
		const query = "SELECT member_state FROM performance_schema.replication_group_members WHERE member_id = @@server_uuid"
		err = admin.QueryRowContext(ctx, query).Scan(&state)
		return state, err
	})
}

// Leave takes a member out of the group. It refuses writes from then on.
func (g *Group) Leave(t testing.TB, s *Server) {
	t.Helper()
	admin, err := s.Admin()
	if err == nil {
		_, err = admin.ExecContext(t.Context(), "STOP GROUP_REPLICATION")
	}
	if err != nil {
		t.Fatalf("testbed: leave: %v", err)
	}
}

// NewAccount makes an account on the group, whose DSNs name both members, the first one
// first.
func (g *Group) NewAccount(t testing.TB) Account {
	t.Helper()
	return g.Members[0].makeAccount(t).Via(g.Members[0].Addr + "," + g.Members[1].Addr)
}
