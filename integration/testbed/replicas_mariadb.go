package testbed

import (
	"fmt"
	"strconv"
	"testing"
)

var mariaDBReplicas = replicaWords{
	hold:     "STOP SLAVE SQL_THREAD",
	release:  "START SLAVE SQL_THREAD",
	position: "SELECT @@global.gtid_binlog_pos",
	reached:  "SELECT MASTER_GTID_WAIT(?, 0) = 0",
}

// startMariaDBPrimary starts a server whose log begins after its set-up, which replicas have made for themselves.
func startMariaDBPrimary(t testing.TB, n *Network, name string) *Server {
	t.Helper()
	s := Start(t, MariaDB, WithRestart(), WithNetwork(n, name), WithArguments("--log-bin=binlog", "--server-id=1", "--binlog-format=ROW", "--sync-binlog=0"))
	s.administer(t, "RESET MASTER")
	return s
}

// startMariaDBReplica starts a server that follows the one called primary by GTIDs.
func startMariaDBReplica(t testing.TB, n *Network, name, primary string, id int) *Server {
	t.Helper()
	s := Start(t, MariaDB, WithNetwork(n, name), WithArguments("--server-id="+strconv.Itoa(id), "--slave-net-timeout=5"))
	s.administer(t,
		fmt.Sprintf("CHANGE MASTER TO MASTER_HOST = '%s', MASTER_USER = 'root', MASTER_PASSWORD = '%s', MASTER_USE_GTID = slave_pos, MASTER_CONNECT_RETRY = 1", primary, mysqlPassword),
		"START SLAVE", "SET GLOBAL read_only = ON")
	return s
}
