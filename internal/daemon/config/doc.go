// Package config reads the daemon's YAML file.
//
// Reading is strict: an unknown key, a value without its unit or a policy that does
// not exist is an error, and every error of a file is reported at once, with line,
// column, the line itself and a hint. Secrets are kept as they stand in the file
// ("env:NAME" or a literal), are resolved when they are used, and are never printed.
package config
