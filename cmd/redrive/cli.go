package main

// cli is the whole command line.
type cli struct {
	JSON bool `name:"json" help:"Write JSON."`

	Receive receiveCmd `cmd:"" group:"tools" help:"Receive deliveries, to try things out."`
	Config  configCmd  `cmd:"" group:"tools" help:"Look at configuration files."`
	Version versionCmd `cmd:"" group:"tools" help:"Print the version."`
}
