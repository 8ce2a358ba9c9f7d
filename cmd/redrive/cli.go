package main

import "github.com/alecthomas/kong"

// cli is the whole command line.
type cli struct {
	JSON       bool             `name:"json" help:"Write JSON."`
	VersionNow kong.VersionFlag `name:"version" help:"Print the version."`

	Serve    serveCmd    `cmd:"" group:"daemon" help:"Run the daemon."`
	Publish  publishCmd  `cmd:"" group:"messages" help:"Put messages in."`
	Show     showCmd     `cmd:"" group:"messages" help:"Tell everything about a message."`
	Messages messagesCmd `cmd:"" group:"messages" help:"Look at messages that are alive."`
	Retry    retryCmd    `cmd:"" group:"messages" help:"Try what waits for a retry at once, as after an outage."`
	Queues   queuesCmd   `cmd:"" group:"messages" help:"Look at queues, pause and resume them."`
	Sessions sessionsCmd `cmd:"" group:"messages" help:"Look at the sessions of the WebSocket gateway."`
	Alerts   alertsCmd   `cmd:"" group:"messages" help:"Tell what alerts fire, and test their receivers."`
	Guards   guardsCmd   `cmd:"" group:"messages" help:"Look at guarded targets, and force a state."`
	Dead     deadCmd     `cmd:"" group:"dead letters" help:"Look at dead letters, repair, redrive and drop them."`
	Plans    plansCmd    `cmd:"" aliases:"plan" group:"dead letters" help:"Look at redrives, pause, resume, change and cancel them."`
	Report   reportCmd   `cmd:"" group:"dead letters" help:"Tell what happened, to hand over: causes, plans, who did what, what is still dead, the ledger."`
	Audit    auditCmd    `cmd:"" group:"dead letters" help:"List who changed what, the newest first."`
	Verify   verifyCmd   `cmd:"" group:"store" help:"Check that no message is missing from the ledger."`
	Store    storeCmd    `cmd:"" group:"store" help:"Check and rescue a store's file."`
	Backup   backupCmd   `cmd:"" group:"store" help:"Write a copy of the store."`
	Copy     copyCmd     `cmd:"" group:"store" help:"Copy messages from one store into another."`
	Attach   attachCmd   `cmd:"" group:"dead letters" help:"Bring dead letters that others keep at a broker into the store."`
	Migrate  migrateCmd  `cmd:"" group:"store" help:"Make, migrate or remove the tables of a store on PostgreSQL or MySQL."`
	Doctor   doctorCmd   `cmd:"" group:"store" help:"Look for what is wrong, and say what to do."`
	Top      topCmd      `cmd:"" group:"messages" help:"Watch the queues with their rates."`
	UI       uiCmd       `cmd:"" name:"ui" group:"messages" help:"Print a link to the dashboard that logs you in, once."`
	Events   eventsCmd   `cmd:"" group:"messages" help:"Print what changes, as NDJSON."`
	Demo     demoCmd     `cmd:"" group:"tools" help:"Show the whole life of messages, in half a minute."`
	Bench    benchCmd    `cmd:"" group:"tools" help:"Measure how fast a store is on this machine."`

	Connect    connectCmd    `cmd:"" group:"tools" help:"Open a WebSocket session, to try things out."`
	Receive    receiveCmd    `cmd:"" group:"tools" help:"Receive deliveries, to try things out."`
	Token      tokenCmd      `cmd:"" group:"tools" help:"Make tokens, and look at those of a daemon."`
	Secret     secretCmd     `cmd:"" group:"tools" help:"Make secrets that sign deliveries."`
	Config     configCmd     `cmd:"" group:"tools" help:"Look at configuration files."`
	Completion completionCmd `cmd:"" group:"tools" help:"Print the completion of a shell."`
	Version    versionCmd    `cmd:"" group:"tools" help:"Print the version."`
	Help       helpCmd       `cmd:"" group:"tools" help:"Show the help of a command."`
	Complete   completeCmd   `cmd:"" name:"__complete" hidden:""`
	Man        manCmd        `cmd:"" name:"__man" hidden:""`
}
