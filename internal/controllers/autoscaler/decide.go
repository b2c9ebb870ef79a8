package autoscaler

import (
	"errors"
	"fmt"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// Look is what an autoscaler decides by.
type Look struct {
	Autoscaler *autoscalingv2.HorizontalPodAutoscaler
	// Scale is that of its target.
	Scale *autoscalingv1.Scale
	// Pods are those of the Scale's selector, Observed what each of the metrics says of them. Both are not needed where Decided says so.
	Pods     []*corev1.Pod
	Observed []Observation
	// Rivals are the autoscalers of these pods, if they are more than this one.
	Rivals  []string
	History History
	Now     time.Time
}

// Plan is what an autoscaler does.
type Plan struct {
	// Told is the autoscaler with the status that it should have, if nothing is scaled.
	Told   *autoscalingv2.HorizontalPodAutoscaler
	Events []Event
	// Scale is to how many pods the target is scaled; nil: it is not.
	Scale *Step
	// History is the one to decide by next time, if nothing is scaled.
	History History
}

// Step is a change of a target.
type Step struct {
	From, To int32
	Why      string
}

// Event is one about an autoscaler.
type Event struct{ Type, Reason, Message string }

func warning(reason, message string) Event { return Event{corev1.EventTypeWarning, reason, message} }

// Bounds says whether the number of pods is decided without any metric: there are none, and so it stays, or more or fewer than there may be.
func Bounds(spec *autoscalingv2.HorizontalPodAutoscalerSpec, current int32) (step *Step, decided bool) {
	switch least := least(spec); {
	case current == 0:
		return nil, true
	case current > spec.MaxReplicas:
		return &Step{current, spec.MaxReplicas, "Current number of replicas above Spec.MaxReplicas"}, true
	case current < least:
		return &Step{current, least, "Current number of replicas below Spec.MinReplicas"}, true
	}
	return nil, false
}

func least(spec *autoscalingv2.HorizontalPodAutoscalerSpec) int32 {
	if spec.MinReplicas == nil {
		return 1
	}
	return *spec.MinReplicas
}

// Decide says what an autoscaler does.
func Decide(l Look) Plan {
	told := l.Autoscaler.DeepCopy()
	current := l.Scale.Spec.Replicas
	p := Plan{Told: told, History: l.History}
	if len(p.History.recommendations) == 0 { // who begins anew does not shrink before it has looked for a while
		p.History = p.History.recommend(current, l.Now)
	}
	told.Status = status(told, current, told.Status.DesiredReplicas, nil)
	set(told, condition{autoscalingv2.AbleToScale, corev1.ConditionTrue, "SucceededGetScale", "the HPA controller was able to get the target's current scale"}, l.Now)

	step, decided := Bounds(&l.Autoscaler.Spec, current)
	if decided && step == nil {
		set(told, condition{autoscalingv2.ScalingActive, corev1.ConditionFalse, "ScalingDisabled", "scaling is disabled since the replica count of the target is zero"}, l.Now)
	}
	if decided {
		if p.Scale = step; step == nil {
			told.Status.DesiredReplicas = current
		}
		return p
	}
	best, said := l.evaluate(&p)
	told.Status.CurrentMetrics = said
	if best == nil {
		return p
	}
	set(told, condition{
		autoscalingv2.ScalingActive, corev1.ConditionTrue, "ValidMetricFound", "the HPA was able to successfully calculate a replica count from " + best.metric,
	}, l.Now)
	why := "All metrics below target"
	if best.replicas > current {
		why = best.metric + " above target"
	}
	v := normalize(l.Autoscaler.Spec.Behavior, size{least(&l.Autoscaler.Spec), l.Autoscaler.Spec.MaxReplicas, current}, best.replicas, p.History, l.Now)
	p.History = p.History.recommend(best.replicas, l.Now)
	set(told, v.able, l.Now)
	set(told, v.limited, l.Now)
	if v.replicas == current {
		told.Status.DesiredReplicas = current
		return p
	}
	p.Scale = &Step{current, v.replicas, why}
	return p
}

// Unscaled is an autoscaler whose target could not be found, or has no scale.
func Unscaled(a *autoscalingv2.HorizontalPodAutoscaler, why error, now time.Time) (*autoscalingv2.HorizontalPodAutoscaler, Event) {
	told := a.DeepCopy()
	set(told, condition{autoscalingv2.AbleToScale, corev1.ConditionFalse, "FailedGetScale", fmt.Sprintf("the HPA controller was unable to get the target's current scale: %v", why)}, now)
	return told, warning("FailedGetScale", why.Error())
}

// Scaled is what is told when a step was taken, or why it was not.
func Scaled(p Plan, failed error, now time.Time) Plan {
	told, step := p.Told, p.Scale
	if failed != nil {
		set(told, condition{autoscalingv2.AbleToScale, corev1.ConditionFalse, "FailedUpdateScale", fmt.Sprintf("the HPA controller was unable to update the target scale: %v", failed)}, now)
		p.Events = append(p.Events, warning("FailedRescale", fmt.Sprintf("New size: %d; reason: %s; error: %v", step.To, step.Why, failed)))
		return p
	}
	set(told, condition{autoscalingv2.AbleToScale, corev1.ConditionTrue, "SucceededRescale", fmt.Sprintf("the HPA controller was able to update the target scale to %d", step.To)}, now)
	p.Events = append(p.Events, Event{corev1.EventTypeNormal, "SuccessfulRescale", fmt.Sprintf("New size: %d; reason: %s", step.To, step.Why)})
	told.Status.DesiredReplicas = step.To
	at := metav1.NewTime(now)
	told.Status.LastScaleTime = &at
	p.History = p.History.changed(step.From, step.To, now)
	return p
}

// evaluate is the metric that asks for the most pods, and what all of them say. nil: it cannot be told how many there should be, and the plan says why. Where
// some metrics fail pods do not become fewer: a metric that nobody heard may be the one that needs them.
func (l Look) evaluate(p *Plan) (*proposal, []autoscalingv2.MetricStatus) {
	if bad := l.selector(p); bad != nil {
		p.Events = append(p.Events, warning("FailedComputeMetricsReplicas", bad.Error()))
		return nil, nil
	}
	metrics := l.Autoscaler.Spec.Metrics
	statuses := make([]autoscalingv2.MetricStatus, len(metrics))
	var best *proposal
	var first error
	var why condition
	invalid := 0
	for i := range metrics {
		proposed, err := l.propose(&metrics[i], l.Observed[i])
		var f failure
		if errors.As(err, &f) {
			p.Events = append(p.Events, warning(f.reason, f.Error()))
			if invalid++; first == nil {
				first = fmt.Errorf("%s: %w", f.what, f)
				why = condition{autoscalingv2.ScalingActive, corev1.ConditionFalse, f.reason, fmt.Sprintf("the HPA was unable to compute the replica count: %v", f)}
			}
			continue
		}
		statuses[i] = proposed.status
		if best == nil || proposed.replicas > best.replicas {
			best = &proposed
		}
	}
	if best == nil || invalid > 0 && best.replicas < l.Scale.Spec.Replicas {
		set(p.Told, why, l.Now)
		p.Events = append(p.Events, warning("FailedComputeMetricsReplicas",
			fmt.Sprintf("invalid metrics (%d invalid out of %d), first error is: %v", invalid, len(metrics), first)))
		return nil, statuses
	}
	return best, statuses
}

// selector says what is wrong about the selector of the pods.
func (l Look) selector(p *Plan) error {
	bad := func(event, reason, message, condemned string) error {
		p.Events = append(p.Events, warning(event, message))
		set(p.Told, condition{autoscalingv2.ScalingActive, corev1.ConditionFalse, reason, condemned}, l.Now)
		return errors.New(message)
	}
	selector := l.Scale.Status.Selector
	if selector == "" {
		return bad("SelectorRequired", "InvalidSelector", "selector is required", "the HPA target's scale is missing a selector")
	}
	if _, err := labels.Parse(selector); err != nil {
		message := fmt.Sprintf("couldn't convert selector into a corresponding internal selector object: %v", err)
		return bad("InvalidSelector", "InvalidSelector", message, message)
	}
	if len(l.Rivals) > 1 {
		message := fmt.Sprintf("pods by selector %v are controlled by multiple HPAs: %v", selector, l.Rivals)
		return bad("AmbiguousSelector", "AmbiguousSelector", message, message)
	}
	return nil
}
