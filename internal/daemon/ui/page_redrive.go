package ui

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/redrive/redrive/internal/problem"
	"github.com/redrive/redrive/internal/wire"
)

// request is a plan for what a filter selects; an empty one selects everything.
func request(action string, f *wire.Filter) wire.PlanRequest {
	req := wire.PlanRequest{Action: action, Filter: f}
	if f.String() == "" {
		req.Filter, req.All = nil, true
	}
	return req
}

// dryRun counts what a plan would do.
func (v *visit) dryRun(req wire.PlanRequest) (wire.DryRun, error) {
	req.DryRun = true
	return send[wire.DryRun](v, http.MethodPost, at("plans"), req)
}

// redriveForm makes the form for what a filter selects. Who may not redrive sees it, too,
// without the count, which the API answers only to who may.
func (v *visit) redriveForm(f *wire.Filter, req wire.PlanRequest) (p redriveForm, err error) {
	var run wire.DryRun
	needs := v.lacks("redrive")
	if needs == "" {
		if run, err = v.dryRun(req); err != nil {
			return p, err
		}
	}
	var queue *wire.Queue
	if f.Queue != "" {
		q, err := get[wire.Queue](v, at("queues", f.Queue), nil)
		if err != nil {
			return p, err
		}
		queue = &q
	}
	p = viewRedrive(f, &run, queue, v.now)
	if queue != nil {
		series, err := v.series(f.Queue)
		if err != nil {
			return p, err
		}
		p.Rate = rateOf(&series)
	}
	p.Form, p.Needs = v.form, needs
	if needs == "" {
		if req.Rate == "" { // the form was not filled in yet
			req.Rate, req.Canary = p.Rate, tries
		}
		p.Request = v.curl(http.MethodPost, at("plans"), req)
	}
	return p, nil
}

func showRedrive(v *visit) error {
	v.title = "Redrive"
	f := wire.FilterFrom(v.query)
	p, err := v.redriveForm(&f, request("redrive", &f))
	if err != nil {
		return err
	}
	v.show(http.StatusOK, "redrive", p)
	return nil
}

// redriveThese starts a redrive as its form says: of a filter ("start", or "count" to see how
// many that would be), of named messages ("now"), or of the ten oldest of a filter ("try").
func redriveThese(v *visit) error {
	v.title = "Redrive"
	f := wire.FilterFrom(v.r.PostForm)
	req := request("redrive", &f)
	switch v.value("act") {
	case "now":
		req = wire.PlanRequest{Action: "redrive", Refs: strings.Fields(v.value("refs"))}
		return v.create(req)
	case "try":
		return v.try(&f)
	}
	if err := v.redriveOptions(&req); err != nil {
		return v.redriveAgain(&f, req, err)
	}
	if v.value("act") == "count" {
		return v.redriveAgain(&f, req, nil)
	}
	if err := v.create(req); err != nil {
		return v.redriveAgain(&f, req, err)
	}
	return nil
}

// create starts a plan and leads to it.
func (v *visit) create(req wire.PlanRequest) error {
	p, err := send[wire.Plan](v, http.MethodPost, at("plans"), req)
	if err != nil {
		return err
	}
	return v.redirect(planPath(p.ID))
}

// redriveOptions reads what the form says beside the filter.
func (v *visit) redriveOptions(req *wire.PlanRequest) (err error) {
	req.Rate, req.To, req.Reason = v.value("rate"), v.value("to"), v.value("why")
	req.NewID, req.ConfirmUncertain, req.ConfirmCorrupt = v.value("new_id") != "", v.value("confirm_uncertain") != "", v.value("confirm_corrupt") != ""
	if v.value("with_canary") != "" {
		if req.Canary, err = strconv.Atoi(v.value("canary")); err != nil || req.Canary < 1 {
			return bad("the canary is no number of messages", "use 1 or more, or leave it out")
		}
	}
	if s := v.value("max_redrives"); s != "" {
		if req.MaxRedrives, err = strconv.Atoi(s); err != nil || req.MaxRedrives < 1 {
			return bad("the most redrives are no number", "use 1 or more, or leave it empty")
		}
	}
	return nil
}

// redriveAgain shows the form as it was filled in, with why nothing was started.
func (v *visit) redriveAgain(f *wire.Filter, req wire.PlanRequest, why error) error {
	ask := req
	if why != nil { // what is wrong with it is said already
		ask = request("redrive", f)
	}
	p, err := v.redriveForm(f, ask)
	if err != nil {
		if why == nil {
			why = err
		}
		return why
	}
	status := http.StatusOK
	if why != nil {
		if p.Problem = problem.Of(why); p.Problem.Internal() {
			return why
		}
		status = p.Problem.Status
	}
	p.Canary, p.Rate, p.To, p.Max, p.Why = v.value("canary"), v.value("rate"), v.value("to"), v.value("max_redrives"), req.Reason
	if v.value("with_canary") == "" {
		p.Canary = ""
	}
	p.NewID, p.Uncertain, p.Corrupt = req.NewID, req.ConfirmUncertain, req.ConfirmCorrupt
	p.Folded = p.To == "" && p.Max == "" && !p.NewID && !p.Uncertain && !p.Corrupt
	v.show(status, "redrive", p)
	return nil
}

const tries = 10

// try redrives the oldest few of what a filter selects, by name.
func (v *visit) try(f *wire.Filter) error {
	refs, err := v.oldest(f)
	if err != nil {
		return err
	}
	return v.create(wire.PlanRequest{Action: "redrive", Refs: refs})
}
