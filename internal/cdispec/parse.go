package cdispec

import (
	"bytes"
	"fmt"

	"go.yaml.in/yaml/v3"
	cdilib "tags.cncf.io/container-device-interface/pkg/cdi"
	specs "tags.cncf.io/container-device-interface/specs-go"
)

// Parse parses and validates the bytes of a spec, JSON or YAML. Fields that it does not know are an error.
func Parse(data []byte) (spec *specs.Spec, err error) {
	defer func() { // outside bytes must not do that to us, whatever the parser thinks of them
		if fault := recover(); fault != nil {
			spec, err = nil, fmt.Errorf("failed to parse CDI Spec: %v", fault)
		}
	}()
	data, monitored, err := withoutMonitoring(data)
	if err != nil {
		return nil, fmt.Errorf("failed to parse CDI Spec: %w", err)
	}
	if spec, err = cdilib.ParseSpec(data); err != nil {
		return nil, fmt.Errorf("failed to parse CDI Spec: %w", err)
	}
	if spec == nil {
		return nil, fmt.Errorf("failed to parse CDI Spec: there is nothing in it")
	}
	if err := Validate(spec); err != nil {
		return nil, err
	}
	for _, i := range monitored {
		edits := &spec.ContainerEdits
		if i >= 0 {
			edits = &spec.Devices[i].ContainerEdits
		}
		edits.IntelRdt.EnableMonitoring = true
	}
	return spec, nil
}

// withoutMonitoring takes intelRdt's enableCMT and enableMBM out, which CDI had from 0.7 on and version 1.1 of the library knows no
// longer. What they asked for is a monitoring group, for which the OCI specification has one field now. It returns the
// devices that have one of them true, by their index; -1 is the file's own edits.
func withoutMonitoring(data []byte) (rest []byte, monitored []int, err error) {
	if !bytes.Contains(data, []byte("enableCMT")) && !bytes.Contains(data, []byte("enableMBM")) {
		return data, nil, nil
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(data, &doc); err != nil {
		return nil, nil, err
	}
	if len(doc.Content) == 0 {
		return data, nil, nil
	}
	root := doc.Content[0]
	take := func(of *yaml.Node, index int) {
		rdt := valueOf(valueOf(of, "containerEdits"), "intelRdt")
		on, wrong := takeFlags(rdt)
		if wrong != nil {
			err = wrong
		}
		if on {
			monitored = append(monitored, index)
		}
	}
	take(root, -1)
	if devices := valueOf(root, "devices"); devices != nil && devices.Kind == yaml.SequenceNode {
		for i, d := range devices.Content {
			take(d, i)
		}
	}
	if err != nil {
		return nil, nil, err
	}
	rest, err = yaml.Marshal(&doc)
	return rest, monitored, err
}

func valueOf(n *yaml.Node, key string) *yaml.Node {
	if n == nil || n.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return n.Content[i+1]
		}
	}
	return nil
}

// takeFlags takes the two fields out of an intelRdt and says whether one is true.
func takeFlags(rdt *yaml.Node) (on bool, err error) {
	if rdt == nil || rdt.Kind != yaml.MappingNode {
		return false, nil
	}
	var rest []*yaml.Node
	for i := 0; i+1 < len(rdt.Content); i += 2 {
		key, value := rdt.Content[i], rdt.Content[i+1]
		if key.Value != "enableCMT" && key.Value != "enableMBM" {
			rest = append(rest, key, value)
			continue
		}
		var flag bool
		if err := value.Decode(&flag); err != nil {
			return false, fmt.Errorf("line %d: intelRdt.%s: %w", value.Line, key.Value, err)
		}
		on = on || flag
	}
	rdt.Content = rest
	return on, nil
}
