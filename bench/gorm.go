package main

import (
	"context"
	"errors"

	"gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"
)

// The contests of an ORM: gorm as its users call it, which wraps each write in a transaction.

const sectionGorm = "gorm on PostgreSQL"

type gormAccount struct {
	ID      int64 `gorm:"primaryKey"`
	Balance int64
}

func (gormAccount) TableName() string { return "accounts" }

type gormRow struct {
	ID   int64 `gorm:"primaryKey"`
	Name string
}

func (gormRow) TableName() string { return "created" }

const createdTable = "create table if not exists created (id bigserial primary key, name text not null)"

type gormClient struct {
	client
	gorm *gorm.DB
}

// throughGorm opens gorm over a client of database/sql.
func throughGorm(open func(int) (client, error)) func(int) (client, error) {
	return func(conns int) (client, error) {
		c, err := open(conns)
		if err != nil {
			return nil, err
		}
		db := c.(sqlClient).db
		if _, err := db.Exec(createdTable); err != nil {
			return nil, errors.Join(err, db.Close())
		}
		g, err := gorm.Open(postgres.New(postgres.Config{Conn: db}), &gorm.Config{Logger: logger.Discard})
		if err != nil {
			return nil, errors.Join(err, db.Close())
		}
		return gormClient{c, g}, nil
	}
}

func gormCreate(ctx context.Context, c client, _ int64) error {
	return c.(gormClient).gorm.WithContext(ctx).Create(&gormRow{Name: "somebody"}).Error
}

func gormFind(ctx context.Context, c client, n int64) error {
	return c.(gormClient).gorm.WithContext(ctx).Take(&gormAccount{}, n).Error
}

// gormTransaction is a transaction of five statements.
func gormTransaction(ctx context.Context, c client, n int64) error {
	return c.(gormClient).gorm.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
		for range 5 {
			if err := tx.Model(&gormAccount{}).Where("id = ?", n).Update("balance", gorm.Expr("balance + 1")).Error; err != nil {
				return err
			}
		}
		return nil
	})
}

// gormContests are those without a proxy, behind one that adds nothing but itself, and 1 ms away.
func gormContests(s *server) (all []contest) {
	for _, at := range []struct {
		where string
		d     *distance
	}{{"", nil}, {", proxy", &distance{}}, {", proxy + 1 ms", &distance{back: 1}}} {
		account := s.reach(at.d)
		v := venue{name: sectionGorm, far: at.d != nil, rounds: pipelineRounds, entrants: []entrant{
			{plainName, everywhere, throughGorm(openPlain(s, account, texts{}))},
			{ours, everywhere, throughGorm(openPooled(account, texts{}))},
			{eagerName, everywhere, throughGorm(openPooled(account, texts{}, eagerBegin))},
		}}
		for _, c := range []struct {
			name string
			run  operation
		}{{"Create", gormCreate}, {"Take", gormFind}, {"Transaction of 5 updates", gormTransaction}} {
			contest := v.contest(c.name+at.where, everywhere, caseConns, warm(c.run), repeat(c.run))
			contest.fresh = at.d == nil
			contest.apart = s
			all = append(all, contest)
		}
	}
	return all
}
