package validation

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod.dev/monopod/internal/pods"
)

// validateActions is about the probes and hooks of a container that runs for the time of the pod; others have none.
func validateActions(c *corev1.Container, role pods.Role, spec *corev1.PodSpec, at *field.Path) (errs field.ErrorList) {
	if role == pods.Init {
		for _, f := range []struct {
			name string
			set  bool
		}{
			{"lifecycle", c.Lifecycle != nil}, {"livenessProbe", c.LivenessProbe != nil}, {"readinessProbe", c.ReadinessProbe != nil}, {"startupProbe", c.StartupProbe != nil},
		} {
			if f.set {
				errs = append(errs, field.Forbidden(at.Child(f.name), "may not be set for init containers without restartPolicy=Always"))
			}
		}
		return errs
	}
	errs = append(errs, validateLifecycle(c.Lifecycle, spec, at.Child("lifecycle"))...)
	if p := c.LivenessProbe; p != nil {
		errs = append(errs, validateProbe(p, at.Child("livenessProbe"))...)
		errs = append(errs, succeedsAtOnce(p, at.Child("livenessProbe"))...)
	}
	if p := c.ReadinessProbe; p != nil {
		at := at.Child("readinessProbe")
		errs = append(errs, validateProbe(p, at)...)
		if grace := p.TerminationGracePeriodSeconds; grace != nil { // it ends no container
			errs = append(errs, field.Invalid(at.Child("terminationGracePeriodSeconds"), *grace, "must not be set for readinessProbes"))
		}
	}
	if p := c.StartupProbe; p != nil {
		errs = append(errs, validateProbe(p, at.Child("startupProbe"))...)
		errs = append(errs, succeedsAtOnce(p, at.Child("startupProbe"))...)
	}
	return errs
}

// succeedsAtOnce: a container that has not failed such a probe is well, so there is nothing to count.
func succeedsAtOnce(p *corev1.Probe, at *field.Path) field.ErrorList {
	if p.SuccessThreshold != 1 {
		return field.ErrorList{field.Invalid(at.Child("successThreshold"), p.SuccessThreshold, "must be 1")}
	}
	return nil
}

func validateProbe(p *corev1.Probe, at *field.Path) field.ErrorList {
	errs := handler{exec: p.Exec, httpGet: p.HTTPGet, tcpSocket: p.TCPSocket, grpc: p.GRPC}.validate(at)
	for _, f := range []struct {
		name  string
		value int32
	}{
		{"initialDelaySeconds", p.InitialDelaySeconds}, {"timeoutSeconds", p.TimeoutSeconds}, {"periodSeconds", p.PeriodSeconds},
		{"successThreshold", p.SuccessThreshold}, {"failureThreshold", p.FailureThreshold},
	} {
		errs = append(errs, apivalidation.ValidateNonnegativeField(int64(f.value), at.Child(f.name))...)
	}
	if grace := p.TerminationGracePeriodSeconds; grace != nil && *grace <= 0 {
		errs = append(errs, field.Invalid(at.Child("terminationGracePeriodSeconds"), *grace, "must be greater than 0"))
	}
	return errs
}

func validateLifecycle(l *corev1.Lifecycle, spec *corev1.PodSpec, at *field.Path) (errs field.ErrorList) {
	if l == nil {
		return nil
	}
	for _, hook := range []struct {
		name string
		do   *corev1.LifecycleHandler
	}{{"postStart", l.PostStart}, {"preStop", l.PreStop}} {
		if do := hook.do; do != nil {
			h := handler{exec: do.Exec, httpGet: do.HTTPGet, tcpSocket: do.TCPSocket, sleep: do.Sleep, grace: spec.TerminationGracePeriodSeconds}
			errs = append(errs, h.validate(at.Child(hook.name))...)
		}
	}
	return append(errs, validateStopSignal(l.StopSignal, spec, at.Child("stopSignal"))...)
}

// validateStopSignal: which signals there are depends on the system, so the API wants it named.
func validateStopSignal(signal *corev1.Signal, spec *corev1.PodSpec, at *field.Path) field.ErrorList {
	switch {
	case signal == nil:
		return nil
	case spec.OS == nil:
		return field.ErrorList{field.Forbidden(at, "may not be set for containers with empty `spec.os.name`")}
	case !pods.IsSignal(string(*signal)):
		return field.ErrorList{field.NotSupported(at, string(*signal), pods.Signals())}
	}
	return nil
}

// handler is what a probe or a hook does, one of these.
type handler struct {
	exec      *corev1.ExecAction
	httpGet   *corev1.HTTPGetAction
	tcpSocket *corev1.TCPSocketAction
	grpc      *corev1.GRPCAction
	sleep     *corev1.SleepAction
	// grace is the pod's grace period, in seconds, which bounds how long a hook sleeps; nil: there is none to compare with.
	grace *int64
}

func (h handler) validate(at *field.Path) (errs field.ErrorList) {
	kinds := 0
	for _, kind := range []struct {
		name     string
		set      bool
		validate func(*field.Path) field.ErrorList
	}{
		{"exec", h.exec != nil, h.validateExec},
		{"httpGet", h.httpGet != nil, h.validateHTTPGet},
		{"tcpSocket", h.tcpSocket != nil, func(at *field.Path) field.ErrorList { return validatePort(h.tcpSocket.Port, at.Child("port")) }},
		{"grpc", h.grpc != nil, func(at *field.Path) field.ErrorList {
			return validatePort(intstr.FromInt32(h.grpc.Port), at.Child("port"))
		}},
		{"sleep", h.sleep != nil, h.validateSleep},
	} {
		switch {
		case !kind.set:
		case kinds > 0:
			errs = append(errs, field.Forbidden(at.Child(kind.name), "may not specify more than 1 handler type"))
		default:
			kinds++
			errs = append(errs, kind.validate(at.Child(kind.name))...)
		}
	}
	if kinds == 0 {
		errs = append(errs, field.Required(at, "must specify a handler type"))
	}
	return errs
}

func (h handler) validateExec(at *field.Path) field.ErrorList {
	if len(h.exec.Command) == 0 {
		return field.ErrorList{field.Required(at.Child("command"), "")}
	}
	return nil
}

func (h handler) validateHTTPGet(at *field.Path) (errs field.ErrorList) {
	if h.httpGet.Path == "" {
		errs = append(errs, field.Required(at.Child("path"), ""))
	}
	errs = append(errs, validatePort(h.httpGet.Port, at.Child("port"))...)
	switch h.httpGet.Scheme {
	case corev1.URISchemeHTTP, corev1.URISchemeHTTPS:
	default:
		errs = append(errs, field.NotSupported(at.Child("scheme"), h.httpGet.Scheme, []corev1.URIScheme{corev1.URISchemeHTTP, corev1.URISchemeHTTPS}))
	}
	for _, header := range h.httpGet.HTTPHeaders {
		errs = append(errs, invalidIf(true, header.Name, at.Child("httpHeaders"), validation.IsHTTPHeaderName)...)
	}
	return errs
}

func (h handler) validateSleep(at *field.Path) field.ErrorList {
	if h.grace != nil && (h.sleep.Seconds < 0 || h.sleep.Seconds > *h.grace) {
		return field.ErrorList{field.Invalid(at, h.sleep.Seconds, fmt.Sprintf("must be non-negative and less than terminationGracePeriodSeconds (%d)", *h.grace))}
	}
	return nil
}

// validatePort is about a port by number, or by the name that the container has for it.
func validatePort(port intstr.IntOrString, at *field.Path) (errs field.ErrorList) {
	if port.Type == intstr.String {
		return invalidIf(true, port.StrVal, at, validation.IsValidPortName)
	}
	for _, message := range validation.IsValidPortNum(port.IntValue()) {
		errs = append(errs, field.Invalid(at, port.IntValue(), message))
	}
	return errs
}
