// Package config reads Monopod's configuration file, fills in defaults and validates the result.
//
// A file is decoded strictly: an unknown key, a key given twice and a wrong apiVersion are errors that name the file,
// the key and what would be right. Nothing here touches the host beyond reading that one file.
//
// Each key is a row of the keys_*.go files (Setting), from which its flag, its default, its rule and all texts about it come.
package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"

	"monopod.dev/monopod/api/config/v1alpha1"
)

// DefaultPath is where the configuration is looked for when no --config is given; it need not exist.
const DefaultPath = "/etc/monopod/config.yaml"

// Read reads the file at path. With mustExist false a file that is not there gives an empty configuration.
func Read(path string, mustExist bool) (v1alpha1.NodeConfiguration, error) {
	var c v1alpha1.NodeConfiguration
	raw, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) && !mustExist {
		return c, nil
	}
	if err != nil {
		return c, fmt.Errorf("configuration: %w", err)
	}
	return c, Decode(path, raw, &c)
}

// Decode decodes raw, the content of the file called name, strictly.
func Decode(name string, raw []byte, c *v1alpha1.NodeConfiguration) error {
	if err := yaml.UnmarshalStrict(raw, c); err != nil {
		return fmt.Errorf("configuration %s: %s", name, strings.TrimPrefix(err.Error(), "error unmarshaling JSON: "))
	}
	if c.APIVersion != v1alpha1.APIVersion || c.Kind != v1alpha1.Kind {
		return fmt.Errorf("configuration %s: it is apiVersion %q, kind %q; this monopod reads apiVersion %q, kind %q",
			name, c.APIVersion, c.Kind, v1alpha1.APIVersion, v1alpha1.Kind)
	}
	return nil
}

// DefaultEphemeral fills those keys that are empty whose usual default names what outlives the node, and others use. Default fills the rest.
func DefaultEphemeral(c *v1alpha1.NodeConfiguration) {
	for _, s := range Settings() {
		if s.Name == "runDir" { // others are below it
			s.fill(c, s.Default)
		}
		s.fill(c, s.Ephemeral)
	}
}

// Default fills every key that is empty. hostname is the machine's name.
func Default(c *v1alpha1.NodeConfiguration, hostname string) {
	c.APIVersion, c.Kind = v1alpha1.APIVersion, v1alpha1.Kind
	if c.NodeName == "" {
		c.NodeName = strings.ToLower(hostname)
	}
	for _, s := range Settings() {
		s.fill(c, s.Default)
	}
	for i, h := range c.Runtime.Handlers {
		if h.Root == "" {
			c.Runtime.Handlers[i].Root = filepath.Join(c.RunDir, "oci", h.Name)
		}
	}
}

// Validate checks a configuration with its defaults filled in. All faults are returned together, each naming its key.
func Validate(c *v1alpha1.NodeConfiguration) error {
	var f faults
	for _, s := range Settings() {
		s.check(c, &f)
	}
	return errors.Join(f...)
}

// faults collects what is wrong, in the order of the rows.
type faults []error

func (f *faults) add(key string, value any, must string) {
	*f = append(*f, fmt.Errorf("configuration: %s is %q; it must %s", key, fmt.Sprint(value), must))
}
