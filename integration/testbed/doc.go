// Package testbed runs the database servers the integration tests need and
// answers questions about them from the server's side.
//
// Servers are containers whose port is published on a fixed port of 127.0.0.1,
// so that a DSN outlives a restart. [Shared] starts one server per engine and
// test process; [Start] starts one with properties of its own. Tests are kept
// apart by an [Account]: a database and a user of their own.
//
// What a pool did is judged by the server alone: how many connections it saw
// ([Account.Watch]), which transactions and locks it still holds, which rows it
// has. The administrator's connections that ask never count as the account's.
package testbed
