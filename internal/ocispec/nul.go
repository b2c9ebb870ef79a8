package ocispec

import (
	"fmt"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// checkNUL refuses a configuration with a NUL in a string that is used: arguments, variables, paths and names all end at the first one,
// so what the kernel, or a program in between, would make of it is not what was asked for. Labels and annotations are told
// back as they came, and used for nothing. The value is not in the error: it may be a secret.
func checkNUL(m proto.Message) error {
	if field, at := nulIn(m.ProtoReflect()); at >= 0 {
		return invalid(strings.TrimPrefix(field, "."), "byte %d is a NUL, at which a string of the kernel ends: leave it out", at)
	}
	return nil
}

// nulIn finds the first NUL in a message: the field, with a dot before it, and the byte of its value; -1: there is none.
func nulIn(m protoreflect.Message) (field string, at int) {
	at = -1
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		name := string(f.Name())
		if name == "labels" || name == "annotations" {
			return true
		}
		field, at = nulInField(f, v)
		field = "." + name + field
		return at < 0
	})
	return field, at
}

func nulInField(f protoreflect.FieldDescriptor, v protoreflect.Value) (below string, at int) {
	at = -1
	switch {
	case f.IsMap():
		v.Map().Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
			if _, at = nulInValue(k.Value()); at >= 0 {
				below = fmt.Sprintf("[%q]", k.String())
			} else if below, at = nulInValue(v); at >= 0 {
				below = fmt.Sprintf("[%s]%s", k, below)
			}
			return at < 0
		})
	case f.IsList():
		for i := 0; i < v.List().Len() && at < 0; i++ {
			if below, at = nulInValue(v.List().Get(i)); at >= 0 {
				below = fmt.Sprintf("[%d]%s", i, below)
			}
		}
	default:
		return nulInValue(v)
	}
	return below, at
}

func nulInValue(v protoreflect.Value) (below string, at int) {
	switch v := v.Interface().(type) {
	case string:
		return "", strings.IndexByte(v, 0)
	case []byte:
		return "", strings.IndexByte(string(v), 0)
	case protoreflect.Message:
		return nulIn(v)
	}
	return "", -1
}

func hasNUL(s string) bool { return strings.IndexByte(s, 0) >= 0 }
