package replicas

import (
	"context"
	"database/sql"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pooldriver/pooldriver"
)

// program is 64 goroutines, each of which writes a counter of its own on the primary and reads it back on a replica.
type program struct {
	*stage
	db    *sql.DB
	other *sql.DB // another process has it
	ways  []way

	reads, stale atomic.Int64
	lost         atomic.Int64 // read-only transactions, with their connection

	mu     sync.Mutex
	errors []error
}

// way runs what writes, then what reads what was written.
type way func(ctx context.Context, p *program, write, read func(context.Context, *sql.DB) error) error

// inTask has both in one task.
func inTask(ctx context.Context, p *program, write, read func(context.Context, *sql.DB) error) error {
	ctx, end := pooldriver.WithTask(ctx)
	defer end()
	if err := write(ctx, p.db); err != nil {
		return err
	}
	return read(pooldriver.Replica(ctx), p.db)
}

// underReads has both under one context of WithReads.
func underReads(ctx context.Context, p *program, write, read func(context.Context, *sql.DB) error) error {
	return withNothing(pooldriver.WithReads(ctx), p, write, read)
}

// byToken has a token go to another process.
func byToken(ctx context.Context, p *program, write, read func(context.Context, *sql.DB) error) error {
	own := pooldriver.WithReads(ctx)
	if err := write(own, p.db); err != nil {
		return err
	}
	return read(pooldriver.Replica(pooldriver.WithToken(ctx, pooldriver.Token(own))), p.other)
}

// withNothing does not tell that the read comes after the write.
func withNothing(ctx context.Context, p *program, write, read func(context.Context, *sql.DB) error) error {
	if err := write(ctx, p.db); err != nil {
		return err
	}
	return read(pooldriver.Replica(ctx), p.db)
}

// run returns when every goroutine has ended, after that time or when enough() says so.
func (p *program) run(ctx context.Context, t *testing.T, seed uint64, length time.Duration, enough func() bool) {
	t.Helper()
	end := time.Now().Add(length)
	var all sync.WaitGroup
	for id := range counters {
		all.Go(func() {
			random := rand.New(rand.NewPCG(seed, uint64(id)))
			for n := int64(1); time.Now().Before(end) && !enough(); n++ {
				p.once(ctx, id, n, random)
			}
		})
	}
	all.Wait()
}

// once writes n to a counter and reads it back.
func (p *program) once(ctx context.Context, id int, n int64, random *rand.Rand) {
	kind, inTx := random.IntN(3), random.IntN(8) == 0
	write := func(ctx context.Context, db *sql.DB) error { return p.write(ctx, db, kind, id, n) }
	read := func(ctx context.Context, db *sql.DB) error {
		got, err := p.read(ctx, db, kind, inTx, id)
		switch {
		case err != nil && inTx:
			p.lost.Add(1)
			return nil
		case err != nil:
			return err
		case got < n:
			p.stale.Add(1)
		}
		p.reads.Add(1)
		return nil
	}
	if err := p.ways[random.IntN(len(p.ways))](ctx, p, write, read); err != nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.errors = append(p.errors, err)
	}
}

// write writes by a statement, a prepared one or in a transaction.
func (p *program) write(ctx context.Context, db *sql.DB, kind, id int, n int64) error {
	text := p.text("UPDATE counter SET n = ? WHERE id = ?")
	switch kind {
	case 0:
		_, err := db.ExecContext(ctx, text, n, id)
		return err
	case 1:
		stmt, err := db.PrepareContext(ctx, text)
		if err != nil {
			return err
		}
		defer stmt.Close()
		_, err = stmt.ExecContext(ctx, n, id)
		return err
	}
	return pooldriver.InTx(ctx, db, nil, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, text, n, id)
		return err
	})
}

// read reads by a query or a prepared one, in a transaction or not.
func (p *program) read(ctx context.Context, db *sql.DB, kind int, inTx bool, id int) (n int64, err error) {
	text := p.text("SELECT n FROM counter WHERE id = ?")
	switch {
	case inTx:
		tx, err := db.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
		if err != nil {
			return 0, err
		}
		defer tx.Rollback()
		if err := tx.QueryRowContext(ctx, text, id).Scan(&n); err != nil {
			return 0, err
		}
		return n, tx.Commit()
	case kind == 1:
		stmt, err := db.PrepareContext(ctx, text)
		if err != nil {
			return 0, err
		}
		defer stmt.Close()
		err = stmt.QueryRowContext(ctx, id).Scan(&n)
		return n, err
	}
	err = db.QueryRowContext(ctx, text, id).Scan(&n)
	return n, err
}
