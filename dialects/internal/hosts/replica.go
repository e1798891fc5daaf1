package hosts

import "errors"

// The errors of a template's Replica.
var (
	ErrReplicaForm = errors.New("a replica is written host:port")
	ErrOfConfig    = errors.New("a config does not lead to replicas: give the DSN to New")
)
