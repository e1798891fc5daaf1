package dialects

// A ReplicaTemplate is a Template whose database can have read-only replicas.
type ReplicaTemplate interface {
	Template
	// Replica makes the template of a replica: at host ("host:port") in place of the DSN's hosts, a standby, and
	// everything else as in the DSN.
	Replica(host string) (Template, error)
	// Standbys are the hosts of the DSN, whose standbys may be the replicas. The error says that the DSN does not
	// ask for a primary.
	Standbys() ([]string, error)
}
