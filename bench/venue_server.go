package main

import (
	"database/sql"
	"fmt"
	"sync"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/integration/testbed"
)

// distances are those of the venues behind a proxy: none, within a data centre,
// across zones.
var distances = []distance{{}, {back: 1}, {there: 2, back: 3}}

// reach returns the account, which starts its server the first time.
type reach func() (testbed.Account, error)

// reach leads to the server at a distance; nil is without a proxy.
func (s *server) reach(d *distance) reach {
	return sync.OnceValues(func() (testbed.Account, error) {
		a, _, err := s.account(d)
		return a, err
	})
}

func postgresVenues(s *server) []venue {
	t := texts{
		query:   "select $1::bigint + 1",
		exec:    "update accounts set balance = balance + 1 where id = $1",
		list:    listText,
		balance: "select balance from accounts where id = $1",
	}
	near := ofQueries(surely(plainName, 0.97), surely(pgxpoolName, 0.95))
	lazy := map[string][]promise{transactionName(1): {faster(plainName, 1.3)}}
	return serverVenues(s, near, lazy, func(account reach) []entrant {
		return []entrant{
			{plainName, everywhere, openPlain(s, account, t)},
			{pgxpoolName, everywhere, openPgxpool(account, t)},
			{ours, everywhere, openPooled(account, t)},
			{eagerName, beginning, openPooled(account, t, eagerBegin)},
		}
	})
}

func mariaVenues(s *server) []venue {
	t := texts{
		query:   "select ? + 1",
		exec:    "update accounts set balance = balance + 1 where id = ?",
		list:    listText,
		balance: "select balance from accounts where id = ?",
	}
	near := ofQueries(faster(plainName, 2.1), asPrepared)
	return serverVenues(s, near, nil, func(account reach) []entrant {
		return []entrant{
			{plainName, everywhere, openPlain(s, account, t)},
			{preparedName, singly, func(conns int) (client, error) { return preparing(openPlain(s, account, t)(conns)) }},
			{plainInterpolate, singly, openPlain(s, account, t, interpolated)},
			{ours, everywhere, openPooled(account, t)},
			{oursInterpolate, singly, openPooled(account, t, interpolated)},
			{lazyName, beginning, openPooled(account, t, lazyBegin)},
		}
	})
}

// mysqlVenues is MySQL without a proxy. Nothing is promised there.
func mysqlVenues(s *server) []venue {
	if s == nil {
		return nil
	}
	direct := mariaVenues(s)[0]
	direct.promises = nil
	return []venue{direct}
}

const (
	lazyBegin  = "pool_lazy_begin=true"
	eagerBegin = "pool_lazy_begin=false"
)

func poolMaxConns(n int) string { return fmt.Sprintf("pool_max_conns=%d", n) }

func openPlain(s *server, account reach, t texts, parameters ...string) func(int) (client, error) {
	return func(conns int) (client, error) {
		a, err := account()
		if err != nil {
			return nil, err
		}
		db, err := s.plain(a, parameters...)
		return openSQL(db, err, conns, t)
	}
}

func openPgxpool(account reach, t texts) func(int) (client, error) {
	return func(conns int) (client, error) {
		a, err := account()
		if err != nil {
			return nil, err
		}
		return openPgx(a.URL(poolMaxConns(conns)), t)
	}
}

func openPooled(account reach, t texts, parameters ...string) func(int) (client, error) {
	return func(conns int) (client, error) {
		a, err := account()
		if err != nil {
			return nil, err
		}
		db := sql.OpenDB(pooldriver.New(a.URL(append([]string{poolMaxConns(conns)}, parameters...)...)))
		return openOurs(db, t)
	}
}

// serverVenues are the server without a proxy, where the promises of near are
// made, and at each distance behind one; those of one are made at 1 ms.
func serverVenues(s *server, near, one map[string][]promise, entrants func(reach) []entrant) []venue {
	direct := venue{name: s.name, server: s, entrants: entrants(s.reach(nil)), promises: near}
	var slow *proxy
	direct.cold = entrants(sync.OnceValues(func() (a testbed.Account, err error) {
		a, slow, err = s.account(&distance{dial: int(dialDelay.Milliseconds())})
		return a, err
	}))
	direct.dialled = func() int64 {
		if slow == nil {
			return 0
		}
		return slow.first.opened.Load()
	}
	venues := []venue{direct}
	for _, d := range distances {
		v := venue{name: fmt.Sprintf("%s, proxy + %d ms", s.name, d.there+d.back), far: true, rounds: 10, entrants: entrants(s.reach(&d))}
		if d.there+d.back == 1 {
			v.promises = one
		}
		venues = append(venues, v)
	}
	return venues
}
