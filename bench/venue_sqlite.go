package main

import (
	"database/sql"
	"fmt"
	"path/filepath"
	"sync"

	"github.com/pooldriver/pooldriver"
)

// sqliteVenue is a file in a directory of its own.
func sqliteVenue(dir string) venue {
	t := texts{
		query:   "select ? + 1",
		exec:    "update accounts set balance = balance + 1 where id = ?",
		list:    listText,
		balance: "select balance from accounts where id = ?",
	}
	parameters := "?_pragma=journal_mode(WAL)&_pragma=synchronous(OFF)&_pragma=busy_timeout(5000)"
	file := filepath.Join(dir, "bench.db")
	fillOnce := sync.OnceValue(func() error { return fillSQLite(file + parameters) })
	plain := func(conns int) (client, error) {
		if err := fillOnce(); err != nil {
			return nil, err
		}
		db, err := sql.Open("sqlite", "file:"+file+parameters)
		return openSQL(db, err, conns, t)
	}
	return venue{
		name: sectionSQLite,
		entrants: []entrant{
			{plainName, everywhere, plain},
			{preparedName, singly, func(conns int) (client, error) { return preparing(plain(conns)) }},
			{ours, everywhere, func(conns int) (client, error) {
				if err := fillOnce(); err != nil {
					return nil, err
				}
				db := sql.OpenDB(pooldriver.New(fmt.Sprintf("sqlite:%s%s&pool_max_conns=%d", file, parameters, conns)))
				return openOurs(db, t)
			}},
		},
		promises: ofQueries(faster(plainName, 1.7), asPrepared),
	}
}

func fillSQLite(dsn string) error {
	db, err := sql.Open("sqlite", "file:"+dsn)
	if err != nil {
		return err
	}
	defer db.Close()
	for _, text := range fill {
		if _, err := db.Exec(text); err != nil {
			return err
		}
	}
	return nil
}
