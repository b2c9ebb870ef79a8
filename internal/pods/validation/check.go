package validation

import (
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// oneOf requires value to be one of those named. An empty value is reported as missing.
func oneOf[T ~string](value T, path *field.Path, allowed ...T) field.ErrorList {
	switch {
	case slices.Contains(allowed, value):
		return nil
	case value == "":
		return field.ErrorList{field.Required(path, "")}
	default:
		return field.ErrorList{field.NotSupported(path, value, allowed)}
	}
}

// among is oneOf of a value for which there is no default: one that is left out is as wrong as any other.
func among[T ~string](value T, path *field.Path, allowed ...T) field.ErrorList {
	if slices.Contains(allowed, value) {
		return nil
	}
	return field.ErrorList{field.NotSupported(path, value, allowed)}
}

// invalidIf reports what check has to say of value, provided that applies.
func invalidIf(applies bool, value string, path *field.Path, check func(string) []string) field.ErrorList {
	if !applies {
		return nil
	}
	var errs field.ErrorList
	for _, message := range check(value) {
		errs = append(errs, field.Invalid(path, value, message))
	}
	return errs
}

// requiredName is a name that must be there and must be a DNS label.
func requiredName(name string, path *field.Path) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	return invalidIf(true, name, path, validation.IsDNS1123Label)
}

func isIP(s string) []string {
	if addr, err := netip.ParseAddr(s); err != nil || addr.Zone() != "" {
		return []string{"must be an IPv4 or IPv6 address"}
	}
	return nil
}
