package cli

import (
	"os"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"monopod.dev/monopod/api/config/v1alpha1"
	"monopod.dev/monopod/internal/config"
)

// Configuration is the --config flag and the settings given on a command line.
type Configuration struct {
	file  string
	given []func(*v1alpha1.NodeConfiguration) error
	// Ephemeral is the flag of commands that may run a node which leaves nothing behind; nil: it is none of them.
	Ephemeral *bool
}

// AddConfiguration gives a command the flags of the roles.
func AddConfiguration(cmd *cobra.Command, roles config.Roles) *Configuration {
	var c Configuration
	cmd.Flags().StringVar(&c.file, "config", "", "configuration `FILE` (default "+config.DefaultPath+", if it exists)")
	for _, s := range config.Settings() {
		if s.Roles&roles != 0 && s.Flag != "" {
			cmd.Flags().Var(&settingFlag{Setting: s, into: &c}, s.Flag, s.Usage())
		}
	}
	groupHelp(cmd)
	return &c
}

// settingFlag is a setting as a flag (pflag.Value). It is checked when it is given, and applied when the file has been read.
type settingFlag struct {
	config.Setting
	into *Configuration
}

func (f *settingFlag) String() string { return "" }
func (f *settingFlag) Type() string   { return f.Value }

func (f *settingFlag) Set(value string) error {
	var scratch v1alpha1.NodeConfiguration
	if err := f.Setting.Set(&scratch, value); err != nil {
		return err
	}
	f.into.given = append(f.into.given, func(n *v1alpha1.NodeConfiguration) error { return f.Setting.Set(n, value) })
	return nil
}

// Load reads the file, lets the flags win, fills in defaults and validates.
func (c *Configuration) Load() (*v1alpha1.NodeConfiguration, error) {
	path, mustExist := c.file, true
	if path == "" {
		path, mustExist = config.DefaultPath, false
	}
	n, err := config.Read(path, mustExist)
	if err != nil {
		return nil, &UsageError{Err: err}
	}
	for _, set := range c.given {
		if err := set(&n); err != nil {
			return nil, &UsageError{Err: err}
		}
	}
	hostname, err := os.Hostname()
	if err != nil {
		return nil, err
	}
	if c.Ephemeral != nil && *c.Ephemeral {
		config.DefaultEphemeral(&n)
	}
	config.Default(&n, hostname)
	if err := config.Validate(&n); err != nil {
		return nil, &UsageError{Err: err}
	}
	return &n, nil
}

// ShowOnly leaves all settings out of a command's help but those that make a difference to it. The others are still taken, so that a node's
// command line serves.
func ShowOnly(cmd *cobra.Command, names ...string) {
	cmd.SetUsageFunc(nil) // so few flags need no groups
	cmd.Flags().VisitAll(func(f *pflag.Flag) { f.Hidden = !slices.Contains(names, f.Name) })
}
