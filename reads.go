package pooldriver

import (
	"context"

	"github.com/pooldriver/pooldriver/internal/floor"
)

// WithReads returns a context whose reads on replicas see its own writes: what was committed under it, or under a
// context derived from it. A read that a replica can serve (Replica) waits up to Config.ReplicaWait for one
// that has replayed those writes. Otherwise the primary serves it. Such a context also stays with the
// replica that it has read from, so that no later read shows an older state.
//
// A task does the same without WithReads. If ctx is of a task, or of WithReads, it is returned as it is. With
// Config.TaskKey use WithReads, too, if Token is to know the writes.
//
// Every write and every commit under such a context costs one more query on the primary, if the
// Connector has replicas. Without replicas WithReads costs nothing.
func WithReads(ctx context.Context) context.Context { return floor.With(ctx) }

// Token returns what a replica needs to have for ctx, as text for another process, which gives it to WithToken. It is
// empty if nothing was written under ctx, and no token was added to it. It has 3000 bytes at most, of letters, digits,
// -, _ and one dot. It tells positions in the log of the database, and no host, name or secret. It is for one
// database: with two of them on replicas each Connector takes the other's position for one that only the primary has.
func Token(ctx context.Context) string { return floor.Token(ctx) }

// WithToken is WithReads for a context that comes after the writes of a token, from another process or an earlier
// request. An empty token adds nothing. A token may come from a client: one that is damaged, forged or of another
// database costs at most that reads go to the primary, after Config.ReplicaWait.
func WithToken(ctx context.Context, token string) context.Context {
	return floor.WithToken(ctx, token)
}
