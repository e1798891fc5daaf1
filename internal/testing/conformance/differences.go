package conformance

import "context"

// Differences returns the closed list. docs/transparency.md has each of them;
// a test keeps the two alike.
//
//nolint:funlen // a table
func Differences() []Difference {
	return []Difference{
		{
			Case: "ConnRawGivesTheDriversConnection", Label: "has the driver's own methods",
			Reason:  "sql.Conn.Raw gives the virtual connection; Raw of this module gives the real one",
			Permits: becomes(describe(false)),
		},
		{
			Case: "SessionStateOutlivesItsCheckout", Label: "seen by the next, row",
			Reason:  "session state ends with the checkout that made it",
			Permits: becomes("nil, nil"),
		},
		{
			Case: "SessionStateOutlivesItsCheckout", Label: "temporary table seen by the next",
			Reason:  "session state ends with the checkout that made it",
			Permits: failing,
		},
		{
			Case: "BeginByHandOutlivesItsCheckout", Label: "seen by the next, row",
			Reason:  "a transaction begun by hand ends with the checkout that began it",
			Permits: becomes(describe("none") + ", nil"),
		},
		{
			Case: "BeginByHandOutlivesItsCheckout", Label: "rows after the rollback",
			Reason:  "a transaction begun by hand ends with the checkout that began it",
			Permits: becomes(describe(1) + ", nil"),
		},
		{
			Case: "ScannersGetWhatTheDriverGave", Label: "given",
			Reason:  "bytes that a Scanner kept stay what they were, also where the driver uses its memory again",
			Permits: holding(describe([]byte("blob"))),
		},
		{
			Case: "StatementsLeaveTheServerWhenClosed", Label: "prepared on the server",
			Reason:  "a closed statement's real one may stay, for the next that is alike",
			Permits: anyNumber,
		},
		{
			Case: "ConnectErrorsReachConn", Label: "conn",
			Reason:  "a real connection is opened when something needs it, and DB.Conn does not",
			Permits: becomes(describeError(nil)),
		},
		{
			Case: "PingOfAServerThatRefusesFails", Label: "ping",
			Reason: "an error of connecting says what was connected to", Permits: explained,
		},
		{
			Case: "ConnectErrorsReachTheFirstOperation", Label: "exec",
			Reason: "an error of connecting says what was connected to", Permits: explained,
		},
		{
			Case: "ConnectErrorsReachTheFirstOperation", Label: "query",
			Reason: "an error of connecting says what was connected to", Permits: explained,
		},
		{
			Case: "ConnectErrorsReachTheFirstOperation", Label: "prepare",
			Reason: "an error of connecting says what was connected to", Permits: explained,
		},
		{
			Case: "ConnectErrorsReachTheFirstOperation", Label: "begin",
			Reason: "an error of connecting says what was connected to", Permits: explained,
		},
		{
			Case: "ConnectErrorsDoNotUseUpTheLimit", Label: "exec",
			Reason: "an error of connecting says what was connected to", Permits: explained,
		},
		{
			Case: "BadConnectionsFromConnectAreReported", Label: "exec",
			Reason: "an error of connecting says what was connected to", Permits: explained,
		},
		{
			Case: "CancelReachesConnect", Label: "exec",
			Reason: "an error of waiting for a connection says what was waited for", Permits: explained,
		},
		{
			Case: "MaxIdleConnsIsRespected", Label: "on the server",
			Reason:  "database/sql's limits count virtual connections; pool_* count real ones",
			Permits: anyNumber,
		},
		{
			Case: "NoIdleConnsMeansANewOneEachTime", Label: "opened on the server",
			Reason:  "database/sql's limits count virtual connections; pool_* count real ones",
			Permits: notMore,
		},
		{
			Case: "ConnMaxLifetimeIsRespected", Label: "opened on the server",
			Reason:  "database/sql's limits count virtual connections; pool_* count real ones",
			Permits: notMore,
		},
		{
			Case: "CloseOfConnectionsThatFailIsReported", Label: "closing with an error",
			Reason:  "the pool closes real connections behind the caller's back",
			Permits: becomes(describeError(nil)),
		},
		{
			Case: "OneBadConnectionIsTriedAgain", Label: "ping",
			Reason:  "a lost connection is replaced also where database/sql does not try again",
			Permits: becomes(describeError(nil)),
		},
		{
			Case: "LostIdleConnectionsAreReplacedUnseen", Label: "ping",
			Reason:  "a lost connection is replaced also where database/sql does not try again",
			Permits: becomes(describeError(nil)),
		},
		{
			Case: "ManyLostIdleConnectionsAreReplacedUnseen", Label: "first use",
			Reason:  "a lost connection is replaced also where database/sql does not try again",
			Permits: becomes(describeError(nil)),
		},
		{
			Case: "PanicsBetweenCheckoutsLeaveTheDatabaseUsable", Label: "Conn.ResetSession",
			Reason:  "a panic where no statement runs costs the connection, not the program",
			Permits: becomes(describeError(nil)),
		},
		{
			Case: "PanicsBetweenCheckoutsLeaveTheDatabaseUsable", Label: "Conn.IsValid",
			Reason:  "a panic where no statement runs costs the connection, not the program",
			Permits: becomes(describeError(nil)),
		},
		{
			Case: "PanicsBetweenCheckoutsLeaveTheDatabaseUsable", Label: "Connector.Connect",
			Reason:  "a panic where no statement runs costs the connection, not the program",
			Permits: caughtPanic,
		},
		{
			Case: "PingReachesTheServer", Label: "cancelled",
			Reason:  "a context that has ended is told as what it is, and costs no connection",
			Permits: becomes(describeError(context.Canceled)),
		},
	}
}
