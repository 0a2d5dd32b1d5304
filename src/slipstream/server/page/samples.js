// Messages to click. The bundled model answers these well; any larger model does.

export const SAMPLES = [
  {
    title: "A word problem",
    message: "Nora carries 8 trays with 9 stamps each and drops 4 stamps. How many stamps does Nora still have?",
    thinking: "off",
  },
  {
    title: "The same, thinking first",
    message: "Nora carries 8 trays with 9 stamps each and drops 4 stamps. How many stamps does Nora still have?",
    thinking: "on",
  },
  {
    title: "Text to JSON",
    message: "Write place, day and hour as JSON: The hospital opens on Monday at 4.",
    thinking: "off",
  },
  {
    title: "Small talk",
    message: "How are you?",
    thinking: "off",
  },
  {
    title: "Free text",
    message: "Tell me something about the sea.",
    thinking: "off",
  },
  {
    title: "Find it in a text",
    message:
      "Keep the following in mind.\n\nLily likes golden stickers. Fertilizers play a crucial role in agriculture. " +
      "Lucas is in the theater. Icebergs form when a piece of ice breaks off and floats away.\n\nWhere is Lucas?",
    thinking: "off",
  },
];
