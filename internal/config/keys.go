package config

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	"monopod.dev/monopod/api/config/v1alpha1"
)

// Setting is one key of the configuration file. All that is said of a key is said in its row of the keys_*.go files: its flag, its default and its rule are used
// from there, and the comment of its field in api/config, its line of `--help` and its row of docs/CONFIGURATION.md are written from there:
//
//	go test ./internal/config -run TestTextsAreThoseOfTheRows -rewrite
type Setting struct {
	// Name is the key as the file has it: "apiServer.port". It says which field of a NodeConfiguration the row is about.
	Name string
	// Flag sets the key on a command line; empty: only the file can. Value is what help calls the flag's value.
	Flag, Value string
	// Group is under which heading help and the page show it.
	Group Group
	// Common settings are those that most people want; help shows them first.
	Common bool
	// Roles are the parts of a node that read it: a command has the flags of the roles that it runs.
	Roles Roles
	// Default is what the key is when nobody sets it, as the flag takes it; a leading RUN-DIR is the run directory. Empty: it stays empty, and
	// Otherwise says what that means, empty: nothing. Ephemeral takes the place of Default where the node is to leave nothing behind.
	Default, Otherwise, Ephemeral string
	// Words say in a phrase what it is, for help; Help is what help alone adds. More says the rest, in sentences, for the page and the field's comment.
	Words, Help, More string

	// rule is about a value of the key by itself, or each of a list; nil: every value that can be read is one.
	rule rule
	// beside is about the value as a whole and beside other keys, whose defaults are filled in.
	beside func(c *v1alpha1.NodeConfiguration, f *faults)
	// parse reads the flag where the type of the field does not say how.
	parse func(c *v1alpha1.NodeConfiguration, text string) error
}

// Roles are a set of the parts of a node.
type Roles uint

// The parts of a node that have settings.
const (
	APIServer Roles = 1 << iota
	Agent
	Runtime
	Devices
	DNS
	Storage
	All = APIServer | Agent | Runtime | Devices | DNS | Storage
)

// Group is the heading under which settings are shown.
type Group string

// The groups, in their order.
const (
	GroupNode        Group = "Node"
	GroupResources   Group = "Resources of the node"
	GroupAPI         Group = "API server"
	GroupSecurity    Group = "Security"
	GroupControllers Group = "Controllers"
	GroupRuntime     Group = "Container runtime"
	GroupImages      Group = "Images and registries"
	GroupNetwork     Group = "Network, services and DNS"
	GroupDevices     Group = "Devices"
	GroupStorage     Group = "Storage"
)

// Groups are all groups, in their order.
func Groups() []Group {
	return []Group{GroupNode, GroupResources, GroupAPI, GroupSecurity, GroupControllers, GroupRuntime, GroupImages, GroupNetwork, GroupDevices, GroupStorage}
}

// Settings are the rows of all keys, by groups.
func Settings() []Setting {
	return slices.Concat(nodeKeys, resourceKeys, apiKeys, securityKeys, controllerKeys, runtimeKeys, imageKeys, networkKeys, deviceKeys, storageKeys)
}

// runDirMark stands in a default for the run directory.
const runDirMark = "RUN-DIR"

// Auto, Enabled and Disabled are the values of settings that are a switch.
const (
	Auto     = "auto"
	Enabled  = "enabled"
	Disabled = "disabled"
)

// Usage is what help says of the flag. Where the row names another key, help names its flag.
func (s *Setting) Usage() string {
	usage := s.Words + s.Help
	switch d := s.Defaults(); {
	case d == "" || s.Otherwise == "none": // which goes without saying
	case s.Otherwise != "":
		usage += " (default: " + d + ")"
	default:
		usage += " (default " + d + ")"
	}
	return keysAsFlags().Replace(usage)
}

// keysAsFlags replaces names of keys by those of their flags, and the mark of code, which a flag's usage has for another purpose.
var keysAsFlags = sync.OnceValue(func() *strings.Replacer {
	all := Settings()
	slices.SortFunc(all, func(a, b Setting) int { return len(b.Name) - len(a.Name) }) // a name may begin as another does
	pairs := []string{"`", "'"}
	for _, s := range all {
		if s.Flag != "" && strings.Contains(s.Name, ".") {
			pairs = append(pairs, s.Name, "--"+s.Flag)
		}
	}
	return strings.NewReplacer(pairs...)
})

// Defaults says what the key is when nobody sets it; empty: nothing.
func (s *Setting) Defaults() string {
	d := s.Default
	if s.Otherwise != "" {
		d = s.Otherwise
	}
	if s.Ephemeral != "" {
		d += "; with --ephemeral " + s.Ephemeral
	}
	return d
}

// field is that of the key in c. A row whose name is that of no field is a mistake in the row, which panics.
func (s *Setting) field(c *v1alpha1.NodeConfiguration) reflect.Value {
	v := reflect.ValueOf(c).Elem()
	for part := range strings.SplitSeq(s.Name, ".") {
		i := slices.IndexFunc(reflect.VisibleFields(v.Type()), func(f reflect.StructField) bool {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			return name == part
		})
		v = v.Field(i)
	}
	return v
}

// examples are values of the forms that say the least about themselves.
var examples = map[string]string{
	"RESOURCE=QUANTITY,...": "cpu=200m,memory=150Mi", "NAME=VALUE,...": "prefer-closest-numa-nodes=true", "NAME=FILE,...": "runc=/usr/sbin/runc",
	"PATTERN:N,...": "vendor.com/gpu:4", "PRIORITY:SECONDS,...": "100000:10", "DURATION": "90s", "BOOL": "true", "FACTOR": "0.9", "PORT": "6443", "N": "10", "PERCENT": "80",
}

// unlike is the error for a text that is not of the setting's form.
func (s *Setting) unlike(text string) error {
	return fmt.Errorf("%q does not have the form %s: use one such as %s", text, s.Value, examples[s.Value])
}

// Set sets the key to what a flag has. What is wrong with the text itself, or with a number, is an error; what else the key must be, Validate says, with
// the whole configuration before it.
func (s *Setting) Set(c *v1alpha1.NodeConfiguration, text string) error {
	if s.parse != nil {
		return s.parse(c, text)
	}
	var err error
	switch p := s.field(c).Addr().Interface().(type) {
	case *string:
		*p = text
	case *[]string:
		*p = strings.Split(text, ",")
	case *bool:
		*p, err = s.boolean(text)
	case **bool:
		*p = new(bool)
		**p, err = s.boolean(text)
	case *int32:
		*p, err = s.number(text)
	case **int32:
		*p = new(int32)
		**p, err = s.number(text)
	case **float64:
		*p = new(float64)
		if **p, err = strconv.ParseFloat(text, 64); err != nil {
			err = s.unlike(text)
		}
	case *v1alpha1.Duration:
		err = s.duration(p, text)
	case **v1alpha1.Duration:
		*p = new(v1alpha1.Duration)
		err = s.duration(*p, text)
	case *map[string]string:
		*p, err = s.pairs(text)
	default:
		return fmt.Errorf("%s cannot be set by a flag", s.Name)
	}
	return err
}

func (s *Setting) boolean(text string) (bool, error) {
	b, err := strconv.ParseBool(text)
	if err != nil {
		return false, fmt.Errorf("%q is neither true nor false: use one of them", text)
	}
	return b, nil
}

// number is held against the rule at once: 0 would be taken for nothing later.
func (s *Setting) number(text string) (int32, error) {
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		return 0, s.unlike(text)
	}
	if s.rule != nil {
		if must := s.rule(int32(n)); must != "" {
			return 0, fmt.Errorf("it must %s", must)
		}
	}
	return int32(n), nil
}

func (s *Setting) duration(d *v1alpha1.Duration, text string) error {
	if err := d.UnmarshalText([]byte(text)); err != nil {
		return s.unlike(text)
	}
	return nil
}

func (s *Setting) pairs(text string) (map[string]string, error) {
	all := map[string]string{}
	for pair := range strings.SplitSeq(text, ",") {
		name, value, ok := strings.Cut(pair, "=")
		if !ok {
			return nil, s.unlike(pair)
		}
		all[name] = value
	}
	return all, nil
}

// fill sets the key to a default if it is empty.
func (s *Setting) fill(c *v1alpha1.NodeConfiguration, value string) {
	v := s.field(c)
	empty := v.IsZero() || (v.Kind() == reflect.Slice || v.Kind() == reflect.Map) && v.Len() == 0
	if value == "" || !empty {
		return
	}
	if below, is := strings.CutPrefix(value, runDirMark); is {
		value = c.RunDir + below
	}
	if err := s.Set(c, value); err != nil {
		panic(fmt.Sprintf("config: the default of %s: %v", s.Name, err)) //nolint:forbidigo // a mistake in the row: no process with it gets past its first line
	}
}

// values are what the rule of the key is about: each that is there.
func (s *Setting) values(c *v1alpha1.NodeConfiguration) (all []any) {
	switch p := s.field(c).Addr().Interface().(type) {
	case *string:
		if *p != "" {
			all = append(all, *p)
		}
	case *[]string:
		for _, item := range *p {
			all = append(all, item)
		}
	case *int32:
		all = append(all, *p)
	case **int32:
		if *p != nil {
			all = append(all, **p)
		}
	case **float64:
		if *p != nil {
			all = append(all, **p)
		}
	case *v1alpha1.Duration:
		all = append(all, p.Duration)
	case **v1alpha1.Duration:
		if *p != nil {
			all = append(all, (*p).Duration)
		}
	}
	return all
}

// check adds what is wrong with the key.
func (s *Setting) check(c *v1alpha1.NodeConfiguration, f *faults) {
	if s.rule != nil {
		for _, v := range s.values(c) {
			if must := s.rule(v); must != "" {
				f.add(s.Name, v, must)
			}
		}
	}
	if s.beside != nil {
		s.beside(c, f)
	}
}
